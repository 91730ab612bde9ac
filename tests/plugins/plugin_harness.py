"""Plugins beside the command line: distributions as pip would have left them, and what the command says of them."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any, NamedTuple

from flagperf.plugins.installed import Plugins
from flagperf.plugins.loading import load_entry_points

DUMMIES = Path(__file__).parent.parent / "dummies"
HEADER = """
from flagperf.api import Activation, CaseReference, Device, DeviceBackend, Presence
from flagperf.kit import TorchrunLauncher
from flagperf.hookspecs import hookimpl
FLAGPERF_HOOK_API = 1
"""


def device_source(*words: str, aliases: Sequence[str] = ()) -> str:
    """A plugin with a device backend for each word, without a launcher."""
    return f"""{HEADER}
def backend(word):
    return type(word, (DeviceBackend,), dict(
        vendor=word, aliases={tuple(aliases)!r}, torch_type="cpu", collective_backend="gloo", precisions=("fp32",),
        presence=lambda self, machine: Presence("absent"), devices=lambda self, machine: [],
        activate=lambda self, local_rank, num_threads: Activation("cpu", word, "none"), synchronize=lambda self: None,
    ))()

@hookimpl
def flagperf_devices():
    return [backend(word) for word in {words!r}]
"""


def launcher_source(word: str, name: str = "torchrun") -> str:
    return f"""
@hookimpl
def flagperf_launchers():
    return [type("L", (TorchrunLauncher,), dict(vendor={word!r}, name={name!r}))()]
"""


class Site:
    """A folder like site-packages. Put it on sys.path before the plugins are loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self, distribution: str, source: str, *, entry_points: Sequence[str] | None = None, version: str = "1.0"
    ) -> Site:
        """Add a distribution of one module. It and, unless others are given, the entry point have the same name."""
        module = distribution.replace("-", "_")
        (self.folder / f"{module}.py").write_text(source)
        return self.describe(
            distribution, version, *([f"{module} = {module}"] if entry_points is None else entry_points)
        )

    def describe(self, distribution: str, version: str, *entry_points: str) -> Site:
        """Add the metadata alone."""
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n\n")
        (info / "entry_points.txt").write_text("\n".join(["[flagperf]", *entry_points, ""]))
        return self

    def entry_points(self) -> list[EntryPoint]:
        return [each for found in distributions(path=[str(self.folder)]) for each in found.entry_points]

    def load(self) -> Plugins:
        return Plugins(load_entry_points(self.entry_points()))


def problem(plugins: Plugins, name: str) -> str:
    return next(status.problem for status in plugins.statuses() if status.name == name)


class Ended(NamedTuple):
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


class FlagPerf:
    """flagperf("plan", "toy", state="present"). The same question is asked once: commands that only look do not change
    what the next one sees."""

    def __init__(self, folders: Sequence[Path], directory: Path) -> None:
        self._path = os.pathsep.join(map(str, folders))
        self._directory = directory
        self._run = functools.cache(self._start)

    def __call__(
        self, *arguments: str, state: str = "absent", adapter_seconds: float | None = None, **variables: str
    ) -> Ended:
        return self._run(arguments, adapter_seconds, tuple(sorted({"ACME_STATE": state, **variables}.items())))

    def _start(
        self, arguments: tuple[str, ...], adapter_seconds: float | None, variables: tuple[tuple[str, str], ...]
    ) -> Ended:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLAGPERF_", "ACME_"))}
        environ = {**inherited, "PYTHONPATH": self._path, **dict(variables)}
        code = "from flagperf.cli import main; main()"
        if adapter_seconds is not None:
            patched = f"node_check.ADAPTER_SECONDS = reach.ADAPTER_SECONDS = {adapter_seconds}"
            code = f"from flagperf.fleet import reach; from flagperf.plan import node_check; {patched}; {code}"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environ, cwd=self._directory, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)


def install_dummies(folder: Path, *packages: Path) -> Path:
    """Install with pip, in one call: most of the time goes into starting it and its build processes."""
    pip = ("pip", "install", "--isolated", "--disable-pip-version-check", "--no-deps", "--no-index")
    build = ("--no-build-isolation", "--no-compile", "--target", str(folder), *map(str, packages))
    done = subprocess.run([sys.executable, "-m", *pip, *build], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"pip could not install the dummies (is hatchling there?):\n{done.stderr}"
    return folder

"""Distributions as pip would have left them, written into a folder: metadata, entry points, one module."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

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
        self,
        distribution: str,
        source: str,
        *,
        entry_points: Sequence[str] | None = None,
        version: str = "1.0",
    ) -> Site:
        """The module is called like the distribution, and so is its one entry point unless others are given."""
        module = distribution.replace("-", "_")
        (self.folder / f"{module}.py").write_text(source)
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n\n")
        lines = [f"{module} = {module}"] if entry_points is None else entry_points
        (info / "entry_points.txt").write_text("\n".join(["[flagperf]", *lines, ""]))
        return self

    def entry_points(self) -> list[EntryPoint]:
        return [each for found in distributions(path=[str(self.folder)]) for each in found.entry_points]

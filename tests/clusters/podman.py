"""A container image, and a podman whose images, containers and settings are in one folder.

The image has what a Python with torch needs of a system and nothing else: a shell, a few programs and the libraries
that they load, copied from this machine, because images cannot be fetched everywhere. Python itself, flagperf and torch
are this machine's, mounted read-only at their own places.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from machine import run
from needs import program

IMAGE = "localhost/flagperf-test:latest"
REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("sh", "cat", "env", "hostname", "id", "ls", "sleep", "true")


class Podman:
    """`environment` is that of every command that starts podman, which then needs no options for its settings."""

    def __init__(
        self, folder: Path, run_folder: Path, enter: Callable[..., list[str]] = lambda *command: [*command]
    ) -> None:
        """`run_folder` is for what a reboot forgets; `enter` makes the command that runs a command where it is."""
        self.settings = _write_settings(folder, run_folder)
        self.environment = {**os.environ, **self.settings}
        self._enter = enter

    def add_image(self, archive: Path) -> None:
        self.ask("import", str(archive), IMAGE)

    def image_id(self) -> str:
        return self.ask("image", "inspect", "--format", "{{.Id}}", IMAGE).strip()

    def containers(self) -> list[str]:
        """The names of those that run."""
        return self.ask("ps", "--format", "{{.Names}}").split()

    def remove_containers(self) -> None:
        self.ask("rm", "--all", "--force", "--time=0")

    def ask(self, *arguments: str) -> str:
        """What podman printed. Raises, with what it said, if it failed."""
        return run(*self._enter(program("podman"), *arguments), environment=self.environment)


def in_container(*command: str, options: Sequence[str] = ()) -> list[str]:
    """Runs `command` in a new container with the Python of this machine, its network and its shared memory."""
    mounts = [f"--volume={path}:{path}:ro" for path in python_folders()]
    usual = ["--rm", "--interactive", "--network=host", "--ipc=host", *mounts]
    return ["podman", "run", *usual, *options, IMAGE, *command]


def python_folders() -> list[Path]:
    """Where this Python, its packages and flagperf are. A virtual environment needs the Python of which it was made."""
    packages = [Path(path) for path in sys.path if path.endswith("-packages")]
    folders = [Path(sys.prefix), Path(sys.base_prefix), REPOSITORY, *packages]
    existing = sorted({folder for folder in folders if folder.is_dir()})
    return [folder for folder in existing if not any(other in folder.parents for other in existing)]


def write_image(archive: Path) -> None:
    programs = [Path(program(name)) for name in PROGRAMS]
    with tarfile.open(archive, "w") as tar:
        for folder, mode in {"tmp": 0o1777, "proc": 0o555, "sys": 0o555, "dev": 0o755}.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        tar.add("/etc/nsswitch.conf", "etc/nsswitch.conf")
        for path in programs:
            tar.add(path.resolve(), f"bin/{path.name}")
        for path in _libraries([*programs, *_python_binaries()]):
            tar.add(path.resolve(), str(path).lstrip("/"))


def _python_binaries() -> list[Path]:
    """What loads the libraries of the system: Python, its modules in C, and torch."""
    modules = Path(sysconfig.get_path("platstdlib", vars={"platbase": sys.base_prefix})) / "lib-dynload"
    torch = importlib.util.find_spec("torch")
    assert torch and torch.origin
    return [Path(sys.executable), *modules.glob("*.so"), *Path(torch.origin).parent.glob("lib/*.so*")]


def _libraries(binaries: list[Path]) -> list[Path]:
    """Every library of the system that they load, by the name by which it is looked for."""
    listed = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    found = {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}
    return sorted(path for path in found if not any(path.is_relative_to(folder) for folder in python_folders()))


def _write_settings(folder: Path, run_folder: Path) -> dict[str, str]:
    """The variables by which podman finds them."""
    settings, storage = folder / "containers.conf", folder / "storage.conf"
    settings.write_text(
        f"""[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
tmp_dir = "{run_folder}/podman"
[containers]
# A root without CAP_SYS_RESOURCE can set these limits too: they are below its own.
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
    )
    # vfs: plain folders, which work on every file system and in every namespace.
    storage.write_text(
        f"""[storage]
driver = "vfs"
graphroot = "{folder}/images"
runroot = "{run_folder}/storage"
"""
    )
    return {"CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage)}


@contextlib.contextmanager
def podman_with_image(folder: Path, archive: Path) -> Iterator[Podman]:
    podman = Podman(folder, folder / "run")
    podman.add_image(archive)
    try:
        yield podman
    finally:
        podman.remove_containers()

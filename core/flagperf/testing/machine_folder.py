"""A machine laid out in a folder, which is what an adapter sees under `Machine.root`, and vendors' tools as executables
that replay recorded or written outputs.

In an answer's text `@USED_1_MiB@` stands for what card 1 uses now, in whole B, KiB or MiB (of 2**20 bytes, also where
the tool prints MB). Card 1 is the second line of the memory file, the second of Simulation.cards and the card whose
physical_index is 1. The file has a line of integer bytes per card; a test changes it while the tool is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from flagperf.api import CommandOutput, Machine
from flagperf.kit import run_tool


class MachineFolder:
    """A machine in a folder, built by calls in a row:

    MachineFolder(tmp_path).pci("0000:07:00.0", "10ab", "0a01", "0302").node("/dev/acme0").module("acme", "7.1")
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def file(self, path: str, text: str = "") -> MachineFolder:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return self

    def pci(
        self, address: str, vendor_id: str, device_id: str, class_id: str, local_cpus: str = "", driver: str = ""
    ) -> MachineFolder:
        """Add a PCI device: ids and class in hexadecimal without 0x, `local_cpus` as the kernel lists them (`0-31`)."""
        folder = f"/sys/bus/pci/devices/{address}"
        self.file(f"{folder}/vendor", f"0x{vendor_id}\n").file(f"{folder}/device", f"0x{device_id}\n")
        self.file(f"{folder}/class", f"0x{class_id:0<6}\n")
        if local_cpus:
            self.file(f"{folder}/local_cpulist", f"{local_cpus}\n")
        if driver:
            self.file(f"/sys/bus/pci/drivers/{driver}/{address}")
        return self

    def node(self, *paths: str) -> MachineFolder:
        """Add device nodes. They are plain files: adapters look at names alone."""
        for path in paths:
            self.file(path)
        return self

    def module(self, name: str, version: str = "") -> MachineFolder:
        self.file(f"/sys/module/{name}/initstate", "live\n")
        return self.file(f"/sys/module/{name}/version", f"{version}\n") if version else self

    def machine(
        self, environ: Mapping[str, str] | None = None, run: Callable[..., CommandOutput] = run_tool
    ) -> Machine:
        """Return the machine. Without `environ`, no tool is found on its PATH."""
        return Machine(self.root, {"PATH": os.devnull} if environ is None else dict(environ), run)


# --- tools -----------------------------------------------------------------------------------------------------------

_SCRIPT = """#!{python} -SE
import json, re, sys, time
from pathlib import Path
spec = json.loads(Path(__file__).with_suffix(".json").read_text())
answer = next((each for each in spec["answers"] if each["arguments"] in (sys.argv[1:], ["*"])), None)
if answer is None:
    sys.exit("PARSE ERROR: Argument: " + " ".join(sys.argv[1:]))
used = [int(line) for line in Path(spec["memory"]).read_text().split()] if spec["memory"] else []
units = {{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}}
def now(found):
    return str(used[int(found[1])] // units[found[2]])
time.sleep(answer["seconds"])
sys.stderr.write(answer["stderr"])
sys.stdout.write(re.sub(r"@USED_(\\d+)_(\\w+)@", now, answer["stdout"]))
sys.exit(answer["returncode"])
"""


class Answer(msgspec.Struct, frozen=True):
    """A fake tool's answer to one command line."""

    arguments: Sequence[str]
    """The exact arguments that it answers; `("*",)` is any."""
    stdout: str
    """The output. `@USED_0_MiB@` in it becomes what card 0 uses now, in whole MiB (or B, KiB)."""
    stderr: str = ""
    """The output on stderr."""
    returncode: int = 0
    """The exit code."""
    seconds: float = 0.0
    """The time that the tool takes."""


def write_tool(folder: Path, name: str, answers: Sequence[Answer], memory: Path | None = None) -> Path:
    """Write an executable `folder/name`. Arguments without an answer are an error, as with the real tools."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / name
    script.write_text(_SCRIPT.format(python=sys.executable))
    script.chmod(0o755)
    spec = {"answers": msgspec.to_builtins(answers), "memory": str(memory) if memory else ""}
    script.with_suffix(".json").write_text(json.dumps(spec))
    return script


def write_memory(path: Path, used_bytes: Sequence[int]) -> None:
    """Write the memory file: what each card uses without the run's own workers, whose use is added."""
    with _locked(path):
        _replace(path.with_name(f"{path.name}.set"), used_bytes)
        _write_sums(path)


def add_use(path: Path, card: int, used_bytes: int) -> None:
    """Set what this process uses of a card from now on, in place of what it said before."""
    with _locked(path):
        uses = path.with_name(f"{path.name}.uses")
        uses.mkdir(exist_ok=True)
        (uses / f"{card}.{os.getpid()}").write_text(str(used_bytes))
        _write_sums(path)


def _write_sums(path: Path) -> None:
    """Add up all uses of processes that live: as on a card, memory ends with its process."""
    sums = [int(word) for word in path.with_name(f"{path.name}.set").read_text().split()]
    for use in path.with_name(f"{path.name}.uses").glob("*.*"):
        card, _, pid = use.name.partition(".")
        if Path("/proc", pid).exists():
            sums[int(card)] += int(use.read_text())
        else:
            use.unlink()
    _replace(path, sums)


def _replace(path: Path, used_bytes: Sequence[int]) -> None:
    """Write the file in one step: a tool never reads half of it."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text("".join(f"{value}\n" for value in used_bytes))
    beside.replace(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def simulated_environ(root: Path, *tool_folders: Path, **variables: str) -> Mapping[str, str]:
    """Return the variables with which flagperf's agent works on a machine laid out in a folder."""
    path = os.pathsep.join([*map(str, tool_folders), os.environ.get("PATH", "")])
    return {"FLAGPERF_SIMULATE": "1", "FLAGPERF_SIMULATE_ROOT": str(root), "PATH": path, **variables}

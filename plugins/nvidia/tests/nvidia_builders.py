"""Machines with NVIDIA cards, laid out in folders: sysfs and nodes, a library that plays NVML, a tool that replays."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from nvidia_outputs import A100, MIB

from flagperf.api import Device
from flagperf.testing import Answer, MachineFolder, SimulatedCard, Simulation, simulated_environ, write_tool
from flagperf_nvidia import smi

HERE = Path(__file__).parent
GIB = 1 << 30
TOTAL = 40960 * MIB
DRIVER = "550.54.15"
PROC_VERSION = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Tue Mar  5 22:23:56 UTC 2024\n"
PATIENCE_SECONDS = 600.0


def uuid(index: int) -> str:
    return f"GPU-5f0e{index:04x}-7c1d-4b2a-9e3f-0123456789ab"


def address(index: int) -> str:
    return f"0000:{7 + 8 * index:02x}:00.0"


def device(index: int, **fields: Any) -> Device:
    """As the adapter describes card `index` of the machines below."""
    given = {"id": uuid(index), "uuid": uuid(index), "pci_address": address(index), **fields}
    return Device(model="A100-SXM4-40GB", short_name="A100", physical_index=index, memory_bytes=TOTAL, **given)


# --- the machine ----------------------------------------------------------------------------------------------------


def folder_with_cards(root: Path, num_cards: int = 2) -> MachineFolder:
    return machine_at(root, [address(index) for index in range(num_cards)])


def machine_at(root: Path, addresses: Sequence[str]) -> MachineFolder:
    folder = MachineFolder(root).node("/dev/nvidiactl").module("nvidia", DRIVER)
    folder.file("/proc/driver/nvidia/version", PROC_VERSION)
    for index, place in enumerate(addresses):
        folder.pci(place, "10de", "20b0", "0302").node(f"/dev/nvidia{index}")
    return folder


def tell_minors(folder: MachineFolder, minors: Mapping[str, int], excluded: str = "No") -> MachineFolder:
    """As the driver tells which node a card has."""
    for place, minor in minors.items():
        text = f"Model: \t\t {A100}\nIRQ:   \t\t 101\nDevice Minor: \t {minor}\nGPU Excluded:\t {excluded}\n"
        folder.file(f"/proc/driver/nvidia/gpus/{place}/information", text)
    return folder


# --- the library ----------------------------------------------------------------------------------------------------


@functools.cache
def library_folder(*defines: str) -> Path:
    """A folder with libnvidia-ml.so.1, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs cc, to build the library that plays NVML")
    folder = Path(_folder_of_libraries().name) / ("-".join(defines) or "driver")
    folder.mkdir(exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    flags = ("-O1", "-w", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", *(f"-D{name}" for name in defines))
    subprocess.run([compiler, *flags, "-o", str(library), str(HERE / "fake_nvml.c")], check=True)
    return folder


@functools.cache
def _folder_of_libraries() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fake-nvml-")


def nvml_card(index: int, **changed: object) -> dict[str, object]:
    card = {
        "uuid": uuid(index), "bus": f"0000{address(index)}".upper(), "name": A100, "total": TOTAL,
        "used": (index + 1) * GIB, "reserved": 900 * MIB, "utilization": 40 + index, "milliwatts": 100500 + index,
        "celsius": 50 + index, "limit": 400000, "default_limit": 400000, "mig": 0,
        "millijoules": (1 << 40) + index, "sm_mhz": 1410 - index, "throttle": "0x1",
        "rows_uncorrectable": 0, "rows_pending": 0, "rows_failed": 0, "pages_pending": 0,
    }  # fmt: skip
    return {name: value for name, value in {**card, **changed}.items() if value is not None}


def nvml_text(
    cards: Sequence[Mapping[str, object]],
    slices: Sequence[Mapping[str, object]] = (),
    processes: Sequence[Mapping[str, object]] = (),
    errors: str = "",
) -> str:
    lines = [f"driver {DRIVER}", "cuda 12040", f"errors {errors}"]
    for word, entries in (("card", cards), ("slice", slices), ("process", processes)):
        lines += ["\t".join([word, *(f"{key}={value}" for key, value in entry.items())]) for entry in entries]
    return "\n".join(lines) + "\n"


def write_nvml(path: Path, text: str) -> None:
    """In one step: the library never reads half of it."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def nvml_environ(root: Path, text: str, *defines: str, **variables: str) -> dict[str, str]:
    """For a child process that works on the machine in `root`, with the cards that `text` describes."""
    write_nvml(root / "nvml.txt", text)
    library = {"FAKE_NVML": str(root / "nvml.txt"), "LD_LIBRARY_PATH": str(library_folder(*defines))}
    return {**os.environ, **simulated_environ(root, **library, **variables)}


def in_child_each(code: str, environs: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """What `code` leaves in `answer` on each of these machines, or the error that it ends with. All of them are asked
    by one process, which loads one library."""
    start = (
        "import json, msgspec, os, sys\n"
        "from pathlib import Path\n"
        "from flagperf.api import Device, Machine\n"
        "from flagperf.errors import ToolFailed\n"
        "from flagperf_nvidia.device import NvidiaBackend\n"
        "from flagperf_nvidia.memory import NvmlProbe\n"
        "answers = {}\n"
        "for name, environ in json.loads(sys.stdin.read()).items():\n"
        "    os.environ.update(environ)\n"
        "    machine = Machine(Path(os.environ['FLAGPERF_SIMULATE_ROOT']), dict(os.environ))\n"
        "    backend, probe = NvidiaBackend(), NvmlProbe()\n"
        "    try:\n"
        "        scope = {'machine': machine, 'backend': backend, 'probe': probe, 'Device': Device}\n"
        f"        exec({code!r}, scope)\n"
        "        answer = scope['answer']\n"
        "    except ToolFailed as error:\n"
        "        answer = f'{type(error).__name__}: {error}'\n"
        "    probe.close()\n"
        "    for variable in environ:\n"
        "        del os.environ[variable]\n"
        "    answers[name] = msgspec.to_builtins(answer)\n"
        "print(json.dumps(answers))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", start],
        env=dict(next(iter(environs.values()))),
        input=json.dumps(environs),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def in_child(code: str, environ: Mapping[str, str]) -> Any:
    return in_child_each(code, {"": environ})[""]


# --- the tool -------------------------------------------------------------------------------------------------------


def write_nvidia_smi(folder: Path, num_cards: int = 2, memory: Path | None = None) -> Path:
    """Answers what the adapter asks. Used memory follows the memory file, where there is one."""
    header = ", ".join(_TITLES.get(field, field) for field in smi.GPU_FIELDS)
    rows = [_smi_row(index, f"@USED_{index}_MiB@" if memory else f"{(index + 1) * 1024}") for index in range(num_cards)]
    cards = [f"GPU {index}: {A100} (UUID: {uuid(index)})" for index in range(num_cards)]
    apps = ["gpu_uuid, pid, process_name, used_gpu_memory [MiB]", f"{uuid(0)}, 4242, python3, 812 MiB"]
    answers = [
        Answer(smi.QUERY_GPU, "\n".join([header, *rows]) + "\n"),
        Answer(smi.LIST, "\n".join(cards) + "\n"),
        Answer(smi.QUERY_COMPUTE_APPS, "\n".join(apps) + "\n"),
    ]
    return write_tool(folder, "nvidia-smi", answers, memory)


_TITLES = {
    "memory.total": "memory.total [MiB]", "memory.used": "memory.used [MiB]", "utilization.gpu": "utilization.gpu [%]",
    "power.draw": "power.draw [W]", "power.limit": "power.limit [W]", "power.default_limit": "power.default_limit [W]",
}  # fmt: skip


def _smi_row(index: int, used_mib: str) -> str:
    bus = f"0000{address(index)}".upper()
    return (
        f"{index}, {uuid(index)}, {bus}, {A100}, {DRIVER}, 40960 MiB, {used_mib} MiB, {40 + index} %, {50 + index}, "
        f"100.50 W, 400.00 W, 400.00 W, Disabled"
    )


# --- both, for flagperf's own suites and runs -----------------------------------------------------------------------


def lay_out(folder: Path) -> Simulation:
    """Two idle cards that NVML tells of; the memory file moves them."""
    folder_with_cards(folder)
    memory = folder / "memory.txt"
    cards = [nvml_card(index, used=0) for index in range(2)]
    environ = nvml_environ(folder, nvml_text(cards))
    told = {name: environ[name] for name in environ if name not in os.environ or environ[name] != os.environ[name]}
    simulated = tuple(SimulatedCard(uuid(index), TOTAL, uuid(index), address(index)) for index in range(2))
    simulation = Simulation(folder, simulated, memory, told, {"cuda": "12.4"})
    simulation.use(0, 0)
    return simulation

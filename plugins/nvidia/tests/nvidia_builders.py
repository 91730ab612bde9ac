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

from flagperf.api import Device, Reading
from flagperf.testing import Answer, MachineFolder, SimulatedCard, Simulation, simulated_environ, write_tool
from flagperf_nvidia import smi

HERE = Path(__file__).parent
TRANSCRIPTS = HERE / "transcripts"
MIB, GIB = 1 << 20, 1 << 30
TOTAL = 40960 * MIB
DRIVER = "550.54.15"
NAME = "NVIDIA A100-SXM4-40GB"
PROC_VERSION = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Tue Mar  5 22:23:56 UTC 2024\n"
PATIENCE_SECONDS = 600.0


# --- what the transcripts say ---------------------------------------------------------------------------------------

FIRST, SECOND = (f"GPU-1b7d4e02-90aa-4c31-8f65-3d2c1b0a9f8{digit}" for digit in "ef")
_ALIKE = {"name": "NVIDIA A100-SXM4-40GB", "driver": "535.161.08", "mig_mode": "Disabled"}
CARDS = [
    Reading(
        FIRST, 13213 * MIB, 40960 * MIB, 97.0, 317.42, 61.0,
        properties={
            "index": "0", "uuid": FIRST, **_ALIKE, "power_limit_watts": "350.00",
            "power_default_limit_watts": "400.00", "pci_address": "0000:3b:00.0",
        },
    ),
    Reading(
        SECOND, 4 * MIB, 40960 * MIB, 0.0, 52.07, 33.0,
        properties={
            "index": "1", "uuid": SECOND, **_ALIKE, "power_limit_watts": "400.00",
            "power_default_limit_watts": "400.00", "pci_address": "0000:af:00.0",
        },
    ),
]  # fmt: skip
"""Of every form of query_gpu."""


def transcript(name: str) -> str:
    return (TRANSCRIPTS / f"{name}.txt").read_text()


def uuid(index: int) -> str:
    return f"GPU-5f0e{index:04x}-7c1d-4b2a-9e3f-0123456789ab"


def address(index: int) -> str:
    return f"0000:{7 + 8 * index:02x}:00.0"


def device(index: int, **fields: Any) -> Device:
    """As the adapter describes card `index` of the machines below."""
    given = {"id": uuid(index), "uuid": uuid(index), "pci_address": address(index), **fields}
    return Device(model="A100-SXM4-40GB", short_name="A100", physical_index=index, memory_bytes=TOTAL, **given)


# --- the machine ----------------------------------------------------------------------------------------------------


def machine_folder(root: Path, num_cards: int = 2) -> MachineFolder:
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
        text = f"Model: \t\t {NAME}\nIRQ:   \t\t 101\nDevice Minor: \t {minor}\nGPU Excluded:\t {excluded}\n"
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
    subprocess.run(
        [
            compiler,
            "-O1",
            "-w",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libnvidia-ml.so.1",
            *(f"-D{name}" for name in defines),
            "-o",
            str(folder / "libnvidia-ml.so.1"),
            str(HERE / "fake_nvml.c"),
        ],
        check=True,
    )
    return folder


@functools.cache
def _folder_of_libraries() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fake-nvml-")


def nvml_card(index: int, **changed: object) -> dict[str, object]:
    card = {
        "uuid": uuid(index), "bus": f"0000{address(index)}".upper(), "name": NAME, "total": TOTAL,
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


def in_child(code: str, environ: Mapping[str, str]) -> Any:
    """What `code` leaves in `answer`, run in a process of its own: pynvml loads its library once per process."""
    start = (
        "import json, msgspec, os\n"
        "from pathlib import Path\n"
        "from flagperf.api import Machine\n"
        "from flagperf_nvidia.device import NvidiaBackend\n"
        "from flagperf_nvidia.memory import NvmlProbe\n"
        "machine, backend, probe = Machine(Path(os.environ['FLAGPERF_SIMULATE_ROOT'])), NvidiaBackend(), NvmlProbe()\n"
    )
    end = "\nprint(json.dumps(msgspec.to_builtins(answer)))\n"
    done = subprocess.run(
        [sys.executable, "-c", start + code + end],
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- the tool -------------------------------------------------------------------------------------------------------


def write_nvidia_smi(folder: Path, num_cards: int = 2, memory: Path | None = None) -> Path:
    """Answers what the adapter asks. Used memory follows the memory file, where there is one."""
    header = ", ".join(_TITLES.get(field, field) for field in smi.GPU_FIELDS)
    rows = [_smi_row(index, f"@USED_{index}_MiB@" if memory else f"{(index + 1) * 1024}") for index in range(num_cards)]
    cards = [f"GPU {index}: {NAME} (UUID: {uuid(index)})" for index in range(num_cards)]
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
        f"{index}, {uuid(index)}, {bus}, {NAME}, {DRIVER}, 40960 MiB, {used_mib} MiB, {40 + index} %, {50 + index}, "
        f"100.50 W, 400.00 W, 400.00 W, Disabled"
    )


# --- both, for flagperf's own suites and runs -----------------------------------------------------------------------


def simulate(folder: Path) -> Simulation:
    """Two idle cards that NVML tells of; the memory file moves them."""
    machine_folder(folder)
    memory = folder / "memory.txt"
    cards = [nvml_card(index, used=0) for index in range(2)]
    environ = nvml_environ(folder, nvml_text(cards))
    told = {name: environ[name] for name in environ if name not in os.environ or environ[name] != os.environ[name]}
    simulated = tuple(SimulatedCard(uuid(index), TOTAL, uuid(index), address(index)) for index in range(2))
    simulation = Simulation(folder, simulated, memory, told, {"cuda": "12.4"})
    simulation.use(0, 0)
    return simulation

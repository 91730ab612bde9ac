"""Machines with MetaX cards, laid out in folders, with an mx-smi that answers as the real one does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from metax_outputs import FIRST, FIRST_UUID, GIB, LOG, MIB, SECOND, SECOND_UUID, SLICE, SLICE_UUID, transcript

from flagperf.api import Device, Machine
from flagperf.testing import (
    Answer,
    MachineFolder,
    SimulatedCard,
    Simulation,
    simulated_environ,
    write_memory,
    write_tool,
)

MOVING_MEMORY = LOG.replace("1048576 KB", "@USED_0_KiB@ KB").replace("2097152 KB", "@USED_1_KiB@ KB")
"""Use that stands in the simulation's memory file."""
ANSWERS = (
    Answer(("-L",), transcript("list")),
    Answer(("--show-memory",), MOVING_MEMORY),
    Answer(("-j",), transcript("json")),
    Answer(("--show-board-power",), transcript("show_board_power")),
    Answer(("--show-temperature",), transcript("show_temperature")),
    Answer(("--show-usage",), transcript("show_usage")),
    Answer(("--show-version",), transcript("show_version")),
    Answer((), transcript("table_c")),
)

SLICED_ANSWERS = (
    Answer(("-L",), transcript("list_sgpu")),
    Answer(("-j",), transcript("json_sgpu")),
    Answer((), transcript("table_c_sgpu")),
)


def folder_with_cards(root: Path) -> MachineFolder:
    """Two C500 with their node and module."""
    folder = MachineFolder(root).node("/dev/mxcd").module("metax")
    for address in (FIRST, SECOND):
        folder.pci(address, "9999", "0a01", "0302", driver="METAX")
    return folder


def machine_with_tool(
    folder: MachineFolder, answers: Sequence[Answer] = ANSWERS, used_bytes: Sequence[int] = (0, 0), **environ: str
) -> Machine:
    """The machine with an mx-smi on its PATH that answers so."""
    bin_folder, memory = folder.root / "bin", folder.root / "memory"
    write_memory(memory, used_bytes)
    write_tool(bin_folder, "mx-smi", answers, memory)
    return folder.machine({"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", **environ})


def without(answers: Sequence[Answer], *arguments: str) -> tuple[Answer, ...]:
    return tuple(answer for answer in answers if tuple(answer.arguments) != arguments)


def replaced(answers: Sequence[Answer], *changed: Answer) -> tuple[Answer, ...]:
    new = {tuple(answer.arguments): answer for answer in changed}
    return tuple(new.get(tuple(answer.arguments), answer) for answer in answers)


def card(index: int = 0, **fields: str) -> Device:
    address, uuid = ((FIRST, FIRST_UUID), (SECOND, SECOND_UUID))[index]
    return Device(uuid, "C500", "C500", index, 64 * GIB, uuid=uuid, pci_address=address, **fields)


def slice_device() -> Device:
    """The slice of list_sgpu.txt."""
    return Device(
        SLICE_UUID, "C500", "C500", 0, 32000 * MIB, uuid=SLICE_UUID, pci_address=FIRST,
        slice="sGPU 2: 50% compute, 31.250 GiB", properties={"sgpu": SLICE},
    )  # fmt: skip


def lay_out(folder: Path) -> Simulation:
    """Two cards with an idle memory and an mx-smi on PATH."""
    folder_with_cards(folder)
    memory = folder / "memory"
    write_memory(memory, (0, 0))
    write_tool(folder / "bin", "mx-smi", ANSWERS, memory)
    cards = tuple(
        SimulatedCard(uuid, 64 * GIB, uuid=uuid, pci_address=address)
        for uuid, address in ((FIRST_UUID, FIRST), (SECOND_UUID, SECOND))
    )
    return Simulation(folder, cards, memory, simulated_environ(folder, folder / "bin"), {"maca": "3.2.1.7"})

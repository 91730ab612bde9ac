"""Machines with Kunlunxin cards, laid out in a folder, with an xpu-smi that answers as the real one does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kunlun_outputs import ADDRESSES, UUIDS, transcript

from flagperf.api import Machine
from flagperf.testing import (
    Answer,
    MachineFolder,
    SimulatedCard,
    Simulation,
    simulated_environ,
    write_memory,
    write_tool,
)

TOTAL_MIB = 98304
CARDS = tuple(SimulatedCard(uuid, TOTAL_MIB << 20) for uuid in UUIDS)
"""As torch tells them: by nothing."""


def folder_with_cards(root: Path) -> MachineFolder:
    """Two P800 OAM with their nodes and driver."""
    folder = MachineFolder(root).node("/dev/xpuctrl", "/dev/xpu0", "/dev/xpu1").module("kunlun")
    for address in ADDRESSES:
        folder.pci(address, "1d22", "3688", "1200")
    return folder


def machine_lines() -> str:
    """What -m says, with memory that moves."""
    first, second = transcript("machine_p800").splitlines(keepends=True)
    return first.replace(" 2051 ", " @USED_0_MiB@ ") + second.replace(" 77120 ", " @USED_1_MiB@ ")


def answers() -> list[Answer]:
    return [
        Answer(("-m",), machine_lines()),
        Answer(("-q",), transcript("query_p800")),
        Answer((), transcript("table_p800")),
    ]


def lay_out(folder: Path) -> Simulation:
    """Two cards with an idle memory, an xpu-smi on PATH and a torch_xmlir that can be imported."""
    machine = folder_with_cards(folder / "root")
    memory, modules = folder / "memory", folder / "modules"
    write_memory(memory, [0] * len(CARDS))
    write_tool(folder / "bin", "xpu-smi", answers(), memory)
    modules.mkdir()
    (modules / "torch_xmlir.py").write_text("import torch\ntorch.backends.cudnn.enabled = False\n")
    path = os.pathsep.join(filter(None, [str(modules), os.environ.get("PYTHONPATH")]))
    environ = simulated_environ(machine.root, folder / "bin", PYTHONPATH=path)
    return Simulation(machine.root, CARDS, memory, environ, torch_version={"cuda": "12.9"})


def machine_with_tool(folder: Path, said: Sequence[Answer], tool: str = "xpu-smi", **environ: str) -> Machine:
    machine = folder_with_cards(folder / "root")
    memory = folder / "memory"
    write_memory(memory, [1 << 30, 3 << 30])
    write_tool(folder / "bin", tool, said, memory)
    return machine.machine({"PATH": str(folder / "bin"), **environ})

"""flagperf's suites on simulated Lumen cards: a machine in a folder, and a lumen-smi that replays."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import Reading
from flagperf.testing import (
    Answer, DeviceSuite, LauncherSuite, MachineFolder, MemorySuite, Recorded, Rig, SimulatedCard, Simulation,
    simulated_environ, write_memory, write_tool,
)  # fmt: skip
from flagperf_lumen import smi

GIB = 1 << 30
CARDS = tuple(
    SimulatedCard(f"GPU-{number}{number}", 64 * GIB, uuid=f"GPU-{number}{number}", pci_address=f"0000:0{number}:00.0")
    for number in (1, 2)
)
OUTPUT = ", ".join(smi.HEADER) + "\n" + "".join(
    f"{index}, {card.uuid}, {card.pci_address}, Lumen One, 65536, @USED_{index}_MiB@, 71.5, N/A\n"
    for index, card in enumerate(CARDS)
)  # fmt: skip


class LumenRig(Rig):
    vendor = "lumen"
    recorded = (
        Recorded(
            smi.parse_query,
            ", ".join(smi.HEADER) + "\n0, GPU-11, 0000:01:00.0, Lumen One, 65536, 1024, 71.5, N/A\n",
            (
                Reading(
                    "GPU-11", 1 * GIB, 64 * GIB, None, 71.5, None,
                    {"temperature_celsius": "the tool says 'N/A'"},
                    {"index": "0", "uuid": "GPU-11", "pci": "0000:01:00.0", "name": "Lumen One"},
                ),
            ),
        ),
    )  # fmt: skip

    def lay_out(self, folder: Path) -> Simulation:
        machine = MachineFolder(folder / "root").module("lumen", "1.0")
        for index, card in enumerate(CARDS):
            machine.pci(card.pci_address, "ffff", "0001", "1200").node(f"/dev/lumen{index}")
        memory = folder / "memory"
        write_memory(memory, [0] * len(CARDS))
        write_tool(folder / "bin", "lumen-smi", [Answer(smi.QUERY, OUTPUT)], memory)
        return Simulation(machine.root, CARDS, memory, simulated_environ(machine.root, folder / "bin"))

    def break_source(self, simulation: Simulation) -> None:
        write_tool(simulation.root.parent / "bin", "lumen-smi", [Answer(("*",), "driver lost\n", returncode=9)])


class TestDevice(DeviceSuite):
    rig = LumenRig()


class TestMemory(MemorySuite):
    rig = LumenRig()


class TestLauncher(LauncherSuite):
    rig = LumenRig()

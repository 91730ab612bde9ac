"""Machines with Hygon cards, laid out in a folder, with a hy-smi that answers as the real one does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hygon_outputs import transcript

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

ADDRESSES = ("0000:1f:00.0", "0000:9e:00.0")
TOTAL_MIB = 65520
ENV_SCRIPT = "export DTK_HOME=/opt/dtk LD_LIBRARY_PATH=/opt/dtk/lib:${LD_LIBRARY_PATH}\necho DTK is loaded\n"
CARDS = tuple(SimulatedCard(each, TOTAL_MIB << 20, pci_address=each) for each in ADDRESSES)


def folder_with_cards(root: Path, pci_id: str = "6210") -> MachineFolder:
    """Two cards, their node and driver, and the functions of a Hygon CPU beside them."""
    folder = MachineFolder(root).node("/dev/kfd", "/dev/dri/card0").module("hycu", "6.3.32-V1.6.0")
    folder.file("/opt/dtk/.dtk_version", "DTK-26.04-rc4\n").file("/opt/dtk/env.sh", ENV_SCRIPT)
    for address in ADDRESSES:
        folder.pci(address, "1d94", pci_id, "0380")
    return with_cpu_functions(folder)


def with_cpu_functions(folder: MachineFolder) -> MachineFolder:
    """Root complex, IOMMU, crypto, SATA, Ethernet."""
    for bus, (device, kind) in enumerate(
        (("1450", "0600"), ("1451", "0806"), ("1456", "1080"), ("7901", "0106"), ("14ab", "0200"), ("200b", "0601"))
    ):
        folder.pci(f"0000:c{bus}:00.0", "1d94", device, kind)
    return folder


def by_card(label: str, values: Sequence[str], first: int = 0) -> dict[str, dict[str, str]]:
    return {f"card{first + index}": {label: value} for index, value in enumerate(values)}


def answers(first: int = 0, addresses: Sequence[str] = ADDRESSES, name: str = "K100_AI") -> list[Answer]:
    """What a hy-smi that numbers cards from `first` says, one metric option per call."""
    memory = {
        f"card{first + index}": {
            "vram Total Memory (MiB)": str(TOTAL_MIB),
            "vram Total Used Memory (MiB)": f"@USED_{index}_MiB@",
        }
        for index in range(len(addresses))
    }
    said: Mapping[tuple[str, ...], Mapping[str, Mapping[str, str]]] = {
        ("--showbus",): by_card("PCI Bus", addresses, first),
        ("--showmeminfo", "vram"): memory,
        ("--showproductname",): by_card("Card Series", [name] * len(addresses), first),
        ("--showuse",): by_card("HCU use (%)", ["15.0", "92.5"], first),
        ("--showpower",): by_card("Average Graphics Package Power (W)", ["121.0", "377.0"], first),
        ("--showtemp",): by_card("Temperature (Sensor edge) (C)", ["43.0", "66.0"], first),
    }
    return [Answer((*option, "--json"), json.dumps(answer) + "\n") for option, answer in said.items()]


def as_text(said: Sequence[Answer]) -> list[Answer]:
    """The same without --json: a line per card and label, between rules."""
    found = []
    for each in said:
        cards = json.loads(each.stdout)
        lines = [
            f"HCU[{card[4:]}]\t\t: {label}: {value}" for card, cells in cards.items() for label, value in cells.items()
        ]
        text = "\n".join(["=" * 20, *lines, "=" * 20, ""])
        found.append(Answer(each.arguments[:-1], text))
    return found


TABLE = [Answer((), transcript("table_hcu_dec_enc"))]
"""Of a release that has nothing else."""


def lay_out(folder: Path, pci_id: str = "6210") -> Simulation:
    """Two cards with an idle memory and a hy-smi on PATH."""
    machine = folder_with_cards(folder / "root", pci_id)
    memory = folder / "memory"
    write_memory(memory, [0] * len(CARDS))
    write_tool(folder / "bin", "hy-smi", answers(), memory)
    environ = simulated_environ(machine.root, folder / "bin")
    return Simulation(machine.root, CARDS, memory, environ, torch_version={"hip": "6.3.26113"})


def machine_with_tool(
    folder: Path,
    said: Sequence[Answer],
    tool: str = "hy-smi",
    pci_ids: Sequence[str] = ("6210", "6210"),
    **environ: str,
) -> Machine:
    machine = folder_with_cards(folder / "root")
    for address, pci_id in zip(ADDRESSES, pci_ids, strict=True):
        machine.pci(address, "1d94", pci_id, "0380")
    memory = folder / "memory"
    write_memory(memory, [1 << 30, 3 << 30])
    write_tool(folder / "bin", tool, said, memory)
    return machine.machine({"PATH": str(folder / "bin"), **environ})

"""The driver of the cards: a folder, NOVA_MACHINE, with the cards and what each process uses of them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from flagperf.testing import SimulatedCard

MACHINE = "NOVA_MACHINE"


def make_machine(folder: Path, *card_bytes: int) -> dict[str, str]:
    """A machine with these cards. Gives the variables that make it this machine."""
    cards = [
        SimulatedCard(f"NOVA-{index}{index}", size, uuid=f"NOVA-{index}{index}")
        for index, size in enumerate(card_bytes)
    ]
    (folder / "used").mkdir(parents=True)
    (folder / "cards.json").write_bytes(msgspec.json.encode(cards))
    return {MACHINE: str(folder)}


def read_cards(folder: str) -> list[SimulatedCard]:
    return msgspec.json.decode((Path(folder) / "cards.json").read_bytes(), type=list[SimulatedCard])


def report_use(folder: str, index: int, used_bytes: int) -> None:
    """What this process uses of a card, replaced in one step: the probe never reads half of it."""
    place = Path(folder) / "used" / f"{index}.{os.getpid()}"
    beside = place.with_suffix(f".{os.getpid()}-new")
    beside.write_text(str(used_bytes))
    beside.replace(place)


def used_bytes(folder: str, index: int) -> int:
    """Of all processes that are still there: as on a card, memory ends with its process."""
    notes = [path for path in (Path(folder) / "used").glob(f"{index}.*") if path.suffix[1:].isdigit()]
    return sum(int(path.read_text()) for path in notes if Path("/proc", path.suffix[1:]).exists())

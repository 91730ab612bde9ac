"""Cells as values: numbers with units, shares, memory, configurations. What cannot be read is None, never zero."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from flagperf.pages.words import words
from flagperf.units import GIB

NOTHING = ("", "/", "-", "n/a", "无", "none")
"""What pages write in a cell without a value."""

_NOTE = re.compile(r"\[\^[^\]]+\]")
_NUMBER = re.compile(r"([-+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(.*)")
_SHAPE = re.compile(r"[（(]\s*(\d{1,6})\s*[x×X*]\s*(\d{1,6})\s*[）)]\s*$")
_ENGLISH = re.compile(r"(?P<device>.*?),\s*(?P<nodes>\d+) nodes?,\s*(?P<cards>\d+) devices?\s*$")
_LAYOUT = re.compile(r"TP(\d{1,6})PP(\d{1,6})(?:DP(\d{1,6}))?", re.IGNORECASE)

UNITS: dict[str, tuple[str, float]] = {
    "tflops": ("FLOP/s", 1e12),
    "tflop/s": ("FLOP/s", 1e12),
    "tops": ("FLOP/s", 1e12),
    "gflops": ("FLOP/s", 1e9),
    "pflops": ("FLOP/s", 1e15),
    "gb/s": ("B/s", 1e9),
    "tb/s": ("B/s", 1e12),
    "gib/s": ("B/s", float(GIB)),
    "gib": ("B", float(GIB)),
    "gb": ("B", 1e9),
    "tb": ("B", 1e12),
    "mib": ("B", float(1 << 20)),
    "w": ("W", 1.0),
    "kw": ("W", 1e3),
    "us": ("s", 1e-6),
    "ms": ("s", 1e-3),
    "s": ("s", 1.0),
    "op/s": ("1/s", 1.0),
    "%": ("share", 0.01),
    "": ("", 1.0),
}
"""Unit on a page, in lower case -> what it measures, and how many of that one is."""


class Quantity(msgspec.Struct, frozen=True):
    value: float
    """As printed."""
    unit: str
    """As printed; empty if there is none."""
    decimals: int
    """Digits behind the point."""

    @property
    def kind(self) -> str:
        return UNITS[self.unit.lower()][0]

    @property
    def amount(self) -> float:
        """In FLOP/s, B/s, B, W, s or as a fraction."""
        return self.value * UNITS[self.unit.lower()][1]

    def is_printed_of(self, value: float) -> bool:
        """Whether `value`, in this unit, rounds to what is printed, or is cut to it."""
        last = 10.0**-self.decimals
        slack = last * 1e-6
        return self.value - last / 2 - slack <= value < self.value + last + slack


class Configuration(msgspec.Struct, frozen=True):
    """`A100单机8卡（1x8）`, `A100, 1 node, 8 devices (1x8)`."""

    device: str
    nodes: int
    devices_per_node: int
    said_nodes: int | None
    """By the words before the brackets, as is the next."""
    said_cards: int | None

    @property
    def cards(self) -> int:
        return self.nodes * self.devices_per_node


def without_note(text: str) -> tuple[str, bool]:
    """A cell without its footnote, and whether it had one."""
    bare = _NOTE.sub("", text).strip()
    return bare, bare != text.strip()


def is_nothing(text: str) -> bool:
    return text.strip().lower() in NOTHING


def quantity(text: str) -> Quantity | None:
    """One number with a known unit or none, and nothing else."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None or len(found[1]) > 40 or found[2].strip().lower() not in UNITS:
        return None
    number, mantissa = found[1].replace(",", ""), found[1].lower().partition("e")[0]
    return Quantity(float(number), found[2].strip(), len(mantissa.partition(".")[2]))


def memory(text: str) -> tuple[Quantity, Quantity] | None:
    """`13.9 /40.0`: used and total, in GiB."""
    first, found, second = text.partition("/")
    used, total = quantity(first), quantity(second)
    if not found or used is None or total is None:
        return None
    return None if {used.unit.lower(), total.unit.lower()} - {"", "gib"} else (used, total)


def configuration(text: str) -> Configuration | None:
    shape = _SHAPE.search(text)
    if shape is None:
        return None
    before = text[: shape.start()].strip()
    nodes, per_node = int(shape[1]), int(shape[2])
    english = _ENGLISH.fullmatch(before)
    if english:
        return Configuration(english["device"], nodes, per_node, int(english["nodes"]), int(english["cards"]))
    device, said_nodes, said_cards = _chinese(before)
    return Configuration(device, nodes, per_node, said_nodes, said_cards) if nodes and per_node else None


def _chinese(text: str) -> tuple[str, int | None, int | None]:
    """Device, machines and cards of `A100两机16卡`."""
    shapes = words().shapes
    numbers = "".join(shapes.numbers)
    pattern = rf"(.*?)([{numbers}]|\d+){shapes.machine}(?:([{numbers}]|\d+){shapes.card})?"
    found = re.fullmatch(pattern, text)
    if found is None:
        return text, None, None
    return found[1].strip(), _count(found[2]), _count(found[3])


def _count(word: str | None) -> int | None:
    if word is None:
        return None
    return words().shapes.numbers.get(word) or int(word)


def layout(text: str) -> tuple[int, int, int] | None:
    found = _LAYOUT.fullmatch(text.strip())
    return (int(found[1]), int(found[2]), int(found[3] or 1)) if found else None


def settings(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of `bs=16, lr=1e-05`. What is no pair is left out."""
    for part in re.split(r"[,，;；]", re.sub(r"[（(][^（()）]*[）)]", "", text)):
        key, found, value = part.partition("=")
        if found and key.strip() and value.strip():
            yield key.strip(), value.strip()

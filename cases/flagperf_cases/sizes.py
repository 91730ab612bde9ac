"""Read sizes as a configuration writes them: 64KiB, 4GiB."""

from __future__ import annotations

import re

from flagperf.errors import BadInput

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
ELEMENT_BYTES = 4
LARGEST = 1 << 40


def read_size(key: str, text: str) -> int:
    """Return bytes. `key` is the value's, for the message."""
    found = re.fullmatch(r"([1-9]\d{0,12})(B|KiB|MiB|GiB)", text)
    size = int(found[1]) * UNITS[found[2]] if found else 0
    if not 8 <= size <= LARGEST or size % ELEMENT_BYTES:
        raise BadInput(
            f"{key}: {text!r} is not a size; write a number of B, KiB, MiB or GiB, from 8B to 1024GiB, "
            f"a multiple of {ELEMENT_BYTES}B"
        )
    return size


def read_sizes(key: str, texts: list[str]) -> list[int]:
    """Return sizes in ascending order, each once."""
    return sorted({read_size(key, text) for text in texts})


def planned_sizes(headline: int, others: list[int]) -> list[tuple[str, int]]:
    """Return class and bytes: `headline` is the size that results are compared by, `sweep` the others."""
    return [("headline", headline), *(("sweep", size) for size in others if size != headline)]

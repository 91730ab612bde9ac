"""Megatron's indexed datasets, written for a test."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path


def write_indexed(prefix: Path, documents: Sequence[Sequence[int]], *, version: int = 1, code: int = 8) -> None:
    lengths = [len(document) for document in documents]
    offsets = [2 * sum(lengths[:number]) for number in range(len(documents))]
    prefix.with_name(prefix.name + ".bin").write_bytes(
        b"".join(struct.pack(f"<{len(document)}H", *document) for document in documents)
    )
    prefix.with_name(prefix.name + ".idx").write_bytes(
        struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", version, code, len(documents), len(documents) + 1)
        + struct.pack(f"<{len(documents)}i", *lengths)
        + struct.pack(f"<{len(documents)}q", *offsets)
        + struct.pack(f"<{len(documents) + 1}q", *range(len(documents) + 1))
    )

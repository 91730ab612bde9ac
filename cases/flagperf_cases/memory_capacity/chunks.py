"""Chunks of a device's memory, each filled with a pattern of its own.

The pattern is made on the host and copied in pieces, so that a full device needs no memory beside the chunks. It is
random but for the first element of every page, which is the number of the page over all chunks: memory that is given
out twice is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from flagperf.worker import Context
from flagperf_cases.sizes import GIB, MIB

LARGEST, SMALLEST = GIB, MIB
PIECE_BYTES = 16 * MIB
PAGE_BYTES = 4096
PAGE = PAGE_BYTES // 4
"""Elements of a page."""


class Chunks:
    def __init__(self, ctx: Context, limit_bytes: int, seed: int) -> None:
        """`limit_bytes`: 0 for none."""
        self._ctx = ctx
        self._limit_bytes = limit_bytes
        generator = torch.Generator().manual_seed(seed)
        self._pattern = torch.randint(0, 1 << 30, (PIECE_BYTES // 4,), dtype=torch.int32, generator=generator)
        self._chunks: list[torch.Tensor] = []
        self.num_bytes = 0

    def fill(self) -> None:
        """Chunks of ever smaller size, until nothing fits any more."""
        size = LARGEST
        while size >= SMALLEST:
            if not self._is_allowed(size) or not self._add(size):
                size //= 2

    @property
    def is_at_limit(self) -> bool:
        return not self._is_allowed(SMALLEST)

    def num_wrong_pages(self) -> int:
        """Pages that do not hold what was written there. All chunks have been written by then."""
        found = torch.empty_like(self._pattern)
        return sum(self._wrong_in(piece, first, found) for piece, first in self._pieces())

    def _is_allowed(self, size: int) -> bool:
        return not self._limit_bytes or self.num_bytes + size <= self._limit_bytes

    def _add(self, size: int) -> bool:
        try:
            chunk = torch.empty(size // 4, dtype=torch.int32, device=self._ctx.device)
            for piece, first in _pieces_of(chunk, self.num_bytes // PAGE_BYTES):
                piece.copy_(self._expected(piece, first))
        except Exception as error:
            if not self._ctx.is_out_of_memory(error):
                raise
            return False
        self._chunks.append(chunk)
        self.num_bytes += size
        return True

    def _pieces(self) -> Iterator[tuple[torch.Tensor, int]]:
        first = 0
        for chunk in self._chunks:
            yield from _pieces_of(chunk, first)
            first += chunk.numel() // PAGE

    def _expected(self, piece: torch.Tensor, first_page: int) -> torch.Tensor:
        """Valid until the next call."""
        pattern = self._pattern[: piece.numel()]
        pages = pattern.view(-1, PAGE)
        pages[:, 0] = torch.arange(first_page, first_page + len(pages), dtype=torch.int32)
        return pattern

    def _wrong_in(self, piece: torch.Tensor, first_page: int, buffer: torch.Tensor) -> int:
        found = buffer[: piece.numel()].copy_(piece)
        expected = self._expected(piece, first_page)
        if torch.equal(found, expected):
            return 0
        return int((found != expected).view(-1, PAGE).any(1).sum())


def _pieces_of(chunk: torch.Tensor, first_page: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Each with the number of its first page."""
    for piece in chunk.split(PIECE_BYTES // 4):
        yield piece, first_page
        first_page += piece.numel() // PAGE

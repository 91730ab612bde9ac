"""Measure how much of a card's memory a program can really use. See README.md."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from flagperf.errors import Unsupported
from flagperf.worker import Context
from flagperf_cases.buffers import host_memory_problem, num_turns
from flagperf_cases.sizes import GIB, MIB


def run(ctx: Context) -> None:
    # Before memory of the host runs out, the kernel ends processes.
    limit_bytes = ctx.config.memory_capacity.limit_bytes
    if not limit_bytes and not ctx.has_own_memory():
        raise Unsupported(
            "the devices of this vendor share the host's memory, which this case would fill until the kernel ends "
            "processes; set a bound: --set memory_capacity.limit_bytes=268435456"
        )
    if problem := host_memory_problem(ctx, limit_bytes):
        raise Unsupported(f"memory_capacity.limit_bytes={limit_bytes}: {problem}; set less")
    with ctx.measured(planned_steps=2 * num_turns(ctx)):
        for devices in ctx.turns():
            _measure(ctx, devices)


def _measure(ctx: Context, devices: str) -> None:
    config = ctx.config.memory_capacity
    chunks = Chunks(ctx, config.limit_bytes, config.seed)
    chunks.fill()
    total, problem = ctx.memory_bytes(), ""
    if wrong := chunks.num_wrong_pages():
        problem = f"{wrong} pages of 4 KiB do not hold what was written there"
    elif total is not None and chunks.num_bytes > total:
        problem = f"{chunks.num_bytes} bytes were written, but the device reports {total} in all"
    labels = {"devices": devices, "until": "limit" if chunks.is_at_limit else "out_of_memory"}
    ctx.row("memory_capacity", labels, [chunks.num_bytes], "bytes", problem)
    if total is None:
        ctx.row("share_of_total", labels, [], "share", "the device does not report the size of its memory")
    else:
        ctx.row("share_of_total", labels, [chunks.num_bytes / total], "share", problem)


# --- chunks -----------------------------------------------------------------------------------------------------------

LARGEST, SMALLEST = GIB, MIB
PIECE_BYTES = 16 * MIB
PAGE_BYTES = 4096
PAGE = PAGE_BYTES // 4
"""Elements of a page."""


class Chunks:
    def __init__(self, ctx: Context, limit_bytes: int, seed: int) -> None:
        """Draw the pattern. A `limit_bytes` of 0 is none."""
        self._ctx = ctx
        self._limit_bytes = limit_bytes
        generator = torch.Generator().manual_seed(seed)
        self._pattern = torch.randint(0, 1 << 30, (PIECE_BYTES // 4,), dtype=torch.int32, generator=generator)
        self._chunks: list[torch.Tensor] = []
        self.num_bytes = 0

    def fill(self) -> None:
        """Allocate chunks of ever smaller size, until nothing fits any more."""
        size = LARGEST
        while size >= SMALLEST:
            if not self._is_allowed(size) or not self._add(size):
                size //= 2

    @property
    def is_at_limit(self) -> bool:
        return not self._is_allowed(SMALLEST)

    def num_wrong_pages(self) -> int:
        """Count the pages that do not hold what was written there. All chunks have been written by then."""
        buffer = torch.empty_like(self._pattern)
        num_wrong = first = 0
        for chunk in self._chunks:
            for piece, first_page in _pieces_of(chunk, first):
                found, expected = buffer[: piece.numel()].copy_(piece), self._expected(piece, first_page)
                if not torch.equal(found, expected):
                    num_wrong += int((found != expected).view(-1, PAGE).any(1).sum())
            first += chunk.numel() // PAGE
        return num_wrong

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

    def _expected(self, piece: torch.Tensor, first_page: int) -> torch.Tensor:
        """Return what a piece has to hold. It is valid until the next call."""
        pattern = self._pattern[: piece.numel()]
        pages = pattern.view(-1, PAGE)
        pages[:, 0] = torch.arange(first_page, first_page + len(pages), dtype=torch.int32)
        return pattern


def _pieces_of(chunk: torch.Tensor, first_page: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield pieces, each with the number of its first page."""
    for piece in chunk.split(PIECE_BYTES // 4):
        yield piece, first_page
        first_page += piece.numel() // PAGE

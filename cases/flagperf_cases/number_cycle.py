"""Make what devices send to each other: small integers at random, repeated with a prime period.

So every rank can tell what any part of any message has to be, sums of all ranks included, without receiving it.
"""

from __future__ import annotations

import math

import torch

from flagperf.worker import WrongOutput
from flagperf_cases.buffers import WINDOW_EXTRA, all_windows

PERIOD = 10_007
CHUNK = 1000 * PERIOD
"""Elements that are compared at a time: 40 MB in fp32."""

LARGEST = 127
EXACT = {torch.float32: 1 << 24, torch.bfloat16: 250}
"""Integers up to these are exact, and sums of fewer parts in any order too. (bfloat16: 256 less what the cycle's end
may add.)"""


def number_cycle(seed: int, dtype: torch.dtype, num_ranks: int) -> torch.Tensor:
    """Draw int64 numbers on the host. The sum over that many ranks, each with a shift of its own from 0 on, is exact in
    `dtype`."""
    generator = torch.Generator().manual_seed(seed)
    largest = min(LARGEST, max(1, EXACT[dtype] // num_ranks))
    numbers = torch.randint(-largest, largest + 1, (PERIOD,), generator=generator)
    apart = math.ceil(num_ranks / EXACT[dtype])  # with very many ranks, most of what is added is zero
    numbers[torch.arange(PERIOD) % apart != 0] = 0
    return numbers


def shifted(cycle: torch.Tensor, shift: int) -> torch.Tensor:
    """Return the cycle as it goes on from there."""
    return cycle.roll(-(shift % PERIOD))


def summed(cycle: torch.Tensor, num_ranks: int) -> torch.Tensor:
    """Add up what ranks send that each send the cycle, shifted by their number."""
    total = torch.zeros_like(cycle)
    for rank in range(num_ranks):
        total += shifted(cycle, rank)
    return total


def message(cycle: torch.Tensor, length: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return cycle.to(dtype).to(device).repeat(math.ceil(length / PERIOD))[:length]


def messages(cycle: torch.Tensor, length: int, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Return messages for calls that take turns, as windows of one buffer: the cycle, shifted by each of
    WINDOW_STARTS."""
    return all_windows(message(cycle, length + WINDOW_EXTRA, dtype, device), length)


def nothing(length: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return a buffer of which every element that is not overwritten is wrong."""
    return torch.full((length,), math.nan, dtype=dtype, device=device)


def check_message(received: torch.Tensor, parts: list[torch.Tensor]) -> dict[str, str]:
    """Compare what arrived with `parts`, the cycles of its equally long parts. Raise WrongOutput."""
    wrong = 0
    for part, cycle in zip(received.view(len(parts), -1), parts, strict=True):
        wanted = message(cycle, min(CHUNK, part.numel()), received.dtype, str(received.device))
        for chunk in part.split(CHUNK):
            if not torch.equal(chunk, wanted[: chunk.numel()]):
                wrong += int((chunk != wanted[: chunk.numel()]).sum())
    if wrong:
        raise WrongOutput(f"{wrong:,} of {received.numel():,} elements are wrong")
    return {"check": f"all {received.numel():,} elements exact"}

"""What the context is measured around: real training of a small model, on one thread."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bench.measure import seconds_of
from flagperf.api import Machine, precision
from flagperf.builtin.cpu import CpuBackend
from flagperf.event_files import EventWriter
from flagperf.kinds import KINDS
from flagperf.worker import Context

STEP_SECONDS = 0.06
"""The least a step takes. Longer steps would hide the context's cost."""

BATCH_SIZE, WIDTH = 32, 512


class Workload:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(2 * WIDTH, 2)
        )
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._batch = {"inputs": torch.randn(BATCH_SIZE, WIDTH), "labels": torch.randint(2, (BATCH_SIZE,))}
        self._accumulate = 1
        self._accumulate = math.ceil(STEP_SECONDS / min(seconds_of(lambda: self.step(self._batch)) for _ in range(50)))

    def batches(self, num_steps: int) -> Iterator[dict[str, Any]]:
        for _ in range(num_steps):
            yield dict(self._batch)

    def step(self, batch: dict[str, Any]) -> Any:
        """One optimizer step; the mean loss as a detached tensor."""
        for _ in range(self._accumulate):
            loss = torch.nn.functional.cross_entropy(self._model(batch["inputs"]), batch["labels"]) / self._accumulate
            loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.detach() * self._accumulate


def make_context(
    events: Path, config: dict[str, Any] | None = None, kind: str = "training", rank: int = 0, world_size: int = 1
) -> Context:
    """As a worker makes it, with the real backend and a real file."""
    backend = CpuBackend()
    return Context(
        backend=backend,
        activation=backend.activate(0, 1, backend.devices(Machine())),
        precision=precision("fp32"),
        kind=KINDS[kind],
        config=config or {"training": {"warmup_steps": 2}},
        sink=EventWriter(events),
        rank=rank,
        world_size=world_size,
        local_rank=rank,
    )

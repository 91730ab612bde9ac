"""Runs a case on the CPU without launcher and agent, in this process or on several ranks, and reads its events."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rank_processes import answers_of_ranks

from flagperf.api import CaseReference, Device, DeviceBackend, precision
from flagperf.builtin.cpu import CpuBackend
from flagperf.errors import BadInput
from flagperf.events import Event, Reported, RowMeasured, SpanBegan, SpanEnded, StepFinished
from flagperf.kinds import KINDS
from flagperf.metrics.registry import vocabulary
from flagperf.plan.settings import fit_layout
from flagperf.spec.job import RunSpec
from flagperf.spec.manifest import Manifest
from flagperf.spec.manifest_reading import read_manifest, with_references
from flagperf.spec.values import Layer, nest, resolve
from flagperf_cases import flagperf_cases

Changes = dict[str, Any]
"""Changes of a profile's values. In a key two underscores stand for the dot: training__seed."""


QUICK_ROWS: Changes = {
    "measure__seconds": 0.001,
    "measure__min_samples": 10,
    "measure__warmup_seconds": 0.0,
    "measure__warmup_cap_seconds": 0.001,
}
"""For cases that time rows."""

QUICK: dict[str, Changes] = {
    "aquila_33b": {"data__samples": 8},
    "collectives": {"collectives__headline": "24KiB", "collectives__sizes": []},
    "distilbert": {"training__max_steps": 3, "data__rows": 70, "data__eval_rows": 20},
    "gemm": {"gemm__headline": "64x96x256", "gemm__shapes": []},
    "glm": {"training__max_steps": 3, "training__batch_size": 4, "data__rows": 40, "data__eval_rows": 9},
    "host_to_device": {"host_to_device__headline": "64KiB", "host_to_device__sizes": []},
    "llama2_70b": {"training__max_steps": 3},
    "llama2_7b_finetune": {
        "training__max_steps": 3, "data__eval_rows": 2, "evaluation__questions": 1, "model__sequence": 48,
    },
    "memory_bandwidth": {"memory_bandwidth__headline": "1MiB", "memory_bandwidth__sizes": ["4KiB"]},
    "memory_capacity": {},
    "operators": {"operators__only": ["relu", "mm"], "operators__dtypes": ["fp32"], "operators__libraries": ["eager"]},
    "peer_to_peer": {"peer_to_peer__headline": "24KiB", "peer_to_peer__sizes": []},
}  # fmt: skip
"""Little work, by case."""


@dataclass(frozen=True)
class CaseHarness:
    name: str

    def manifest(self) -> Manifest:
        path = self._reference().manifest
        return with_references(read_manifest(path, vocabulary()), path, vocabulary())

    def values(self, profile: str = "tiny", devices: int = 1, **changes: Any) -> dict[str, Any]:
        """The resolved values of a profile."""
        manifest = self.manifest()
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        layers = [Layer("profile", manifest.profiles[profile].values), Layer("test", nest(dotted), source="user")]
        return fit_layout(resolve(manifest, layers), RunSpec(self.name, devices=devices)).values

    def quick_changes(self, **changes: Any) -> Changes:
        rows = QUICK_ROWS if "measure" in self.manifest().values else {}
        return {**QUICK[self.name], **rows, **changes}

    def quick(self, **changes: Any) -> dict[str, Any]:
        """The values of a run with little work."""
        return self.values(**self.quick_changes(**changes))

    def settings(self, profile: str = "tiny", **changes: Any) -> SimpleNamespace:
        """The same with attributes, as a case gets them."""
        found = self.values(profile, **changes)
        return SimpleNamespace(**{name: SimpleNamespace(**found[name]) for name in found if name != "precision"})

    def run(
        self,
        config: dict[str, Any],
        data_dir: Path | None = None,
        rank: int = 0,
        world_size: int = 1,
        backend: DeviceBackend | None = None,
        memory_bytes: int | None = None,
        per_node: int | None = None,
    ) -> list[Event]:
        """On the CPU, unless another vendor's backend is given; on one node, unless it has fewer ranks. The device
        reports `memory_bytes`."""
        import torch

        from flagperf.worker.context import Context

        torch.set_num_threads(1)  # pytest has a process per core already, and small models do not gain from more
        _forget_accelerator()
        backend, recorder = backend or CpuBackend(), Recorder()
        devices = [Device(f"cpu:{slot}", "CPU", "CPU", slot) for slot in range(world_size)]
        activation = backend.activate(rank, 1, devices)
        backend.set_precision(precision(config["precision"]))
        context = Context(
            backend=backend,
            activation=activation,
            precision=precision(config["precision"]),
            kind=KINDS[self.manifest().kind],
            config=config,
            sink=recorder,
            rank=rank,
            world_size=world_size,
            local_rank=rank % (per_node or world_size),
            node_index=rank // (per_node or world_size),
            memory_bytes=memory_bytes,
            data_dir=data_dir,
        )
        module, _, function = self._reference().target.partition(":")
        case = getattr(import_module(module), function)
        gc.freeze()  # timed rows collect garbage: what pytest has imported is then not searched again and again
        try:
            case(context)
        finally:
            gc.unfreeze()
        return recorder.events

    def run_ranks(
        self, folder: Path, world_size: int, runs: Sequence[Changes], data_dirs: Sequence[Path | None] | None = None
    ) -> list[list[list[Event]]]:
        """Events by run and rank. Each rank's process does all the runs."""
        items = list(zip(runs, data_dirs or [None] * len(runs), strict=True))
        module, _, _ = self._reference().target.partition(":")
        return answers_of_ranks(folder, world_size, self._run_as_rank, items, imports=[module])

    def _run_as_rank(self, item: tuple[Changes, Path | None]) -> list[Event]:
        from torch import distributed

        changes, data_dir = item
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
        return self.run(self.values(devices=world_size, **changes), data_dir, rank, world_size, memory_bytes=8 << 30)

    def _reference(self) -> CaseReference:
        return next(case for case in flagperf_cases() if case.manifest.parent.name == self.name)


class SmallCache(CpuBackend):
    """The CPU with a cache that small buffers flush."""

    def cache_bytes(self) -> int | None:
        return 1 << 17


def moments(events: Sequence[Event]) -> list[str]:
    """`training began`, `evaluation ended`, `StepFinished`."""
    return [_moment(event) for event in events]


def _moment(event: Event) -> str:
    if isinstance(event, SpanBegan):
        return f"{event.name} began"
    return f"{event.name} ended" if isinstance(event, SpanEnded) else type(event).__name__


def refusal(check_files: Callable[[Path | None, Any], Any], data_dir: Path | None, config: dict[str, Any]) -> str:
    """The message with which a case refuses values or files. It has to say what to do, after the problem."""
    with pytest.raises(BadInput) as caught:
        check_files(data_dir, config)
    assert ";" in str(caught.value)
    return str(caught.value)


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, *events: Event) -> None:
        self.events += events


def steps(events: list[Event]) -> list[StepFinished]:
    return [event for event in events if isinstance(event, StepFinished)]


def rows(events: list[Event]) -> list[RowMeasured]:
    return [event for event in events if isinstance(event, RowMeasured)]


def reports(events: list[Event]) -> list[dict[str, float]]:
    return [event.values for event in events if isinstance(event, Reported)]


def only_report(events: list[Event]) -> dict[str, float]:
    (found,) = reports(events)
    return found


def reported(events: list[Event]) -> dict[str, float]:
    """The last value of every name."""
    return {name: value for report in reports(events) for name, value in report.items()}


def global_losses(ranks: list[list[Event]]) -> list[float]:
    """Loss of each step over all ranks, each rank by its real samples."""
    by_step = zip(*(steps(events) for events in ranks), strict=True)
    return [sum(s.loss * s.samples for s in step) / sum(s.samples for s in step) for step in by_step]


def _forget_accelerator() -> None:
    """accelerate keeps one state per process, which refuses another precision."""
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)

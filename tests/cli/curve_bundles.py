"""Bundles in ./runs whose raw files hold a loss curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from metric_builders import MODEL, began, ended, make_job, make_manifest, rank_file, step

from flagperf.bundle.bundle import create_bundle, seal
from flagperf.bundle.run_record import Ending
from flagperf.event_files import EventWriter
from flagperf.events import DataDescribed
from flagperf.spec.manifest import Page
from flagperf.spec.values import Resolved, nest
from run_builders import make_run

FALLING = [10 - 0.05 * n for n in range(1, 31)]


def scaled(factor: float) -> list[float]:
    return [loss * factor for loss in FALLING]


def make_bundle(
    name: str,
    losses: Sequence[float | None],
    *,
    num_ranks: int = 1,
    samples: int = 8,
    diverged: bool = True,
    data: str = "aa",
    case: str = "toy",
    **values: Any,
) -> Path:
    """A run whose ranks share some samples a step and see these losses. A step without one diverged, or has none."""
    settings = {"training.seed": 0, "precision": "fp16", **{key.replace("__", "."): v for key, v in values.items()}}
    job = make_job([num_ranks], run_id=name, case=case, config=Resolved(nest(settings), {}, {}))
    path = bundle_of(name, job)
    for rank in range(num_ranks):
        steps = [
            step(n, n, n + 1, samples=samples // num_ranks, loss=loss, diverged=diverged and loss is None)
            for n, loss in enumerate(losses, start=1)
        ]
        events = rank_file(MODEL, DataDescribed(0, "train", 9, data), began(1), *steps, ended(999), rank=rank).events
        with EventWriter(path / "events" / f"rank-{rank:05d}.jsonl") as file:
            file.write(*events)
    seal(path)
    return path


def bundle_of(name: str, job: Any) -> Path:
    """Of a case whose page has the verdict."""
    manifest = make_manifest(page=Page(("configuration", "loss_aligned"), ("loss_aligned",)))
    run = msgspec.structs.replace(make_run(name), job=job, manifest=manifest, ending=Ending("succeeded"))
    return create_bundle(Path("runs"), run, ())

"""Runs the case on the CPU without launcher and agent: in this process, or as one of several ranks.

As a script: FOLDER RANK WORLD_SIZE; reads FOLDER/changes.json, a list of flat configuration changes, runs the case once
for each and leaves the events in FOLDER/<rank>.json.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from flagperf.api import Device, precision
from flagperf.builtin.cpu import CpuBackend
from flagperf.events import AnyEvent, Event, Reported, StepFinished
from flagperf.spec.manifest import Manifest, read_manifest
from flagperf.spec.values import Layer, nest, resolve
from flagperf_cases import flagperf_cases

Changes = dict[str, Any]


def manifest() -> Manifest:
    names = {case.manifest.parent.name: case.manifest for case in flagperf_cases()}
    return read_manifest(names["llama2_7b_finetune"])


def values(profile: str = "tiny", **changes: Any) -> dict[str, Any]:
    """The resolved values of a profile. A key is written with two underscores for the dot: training__seed=1."""
    found = manifest()
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    layers = [Layer("profile", found.profiles[profile].values), Layer("test", nest(dotted), is_deviation=True)]
    return resolve(found, layers).values


def settings(profile: str = "tiny", **changes: Any) -> SimpleNamespace:
    """The same by attribute, as a case sees it."""
    found = values(profile, **changes)
    return SimpleNamespace(**{name: SimpleNamespace(**found[name]) for name in found if name != "precision"})


TEXTS = ("the quick brown fox jumps over the lazy dog", "Answer: A B C D", "A. one B. two C. three D. four")


def trained_tokenizer(path: Path, texts: Sequence[str] = TEXTS, **settings: Any) -> Path:
    """A real SentencePiece model of a few pieces."""
    from sentencepiece import SentencePieceTrainer

    model = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*texts] * 20), model_writer=model, vocab_size=60, model_type="bpe", minloglevel=2,
        hard_vocab_limit=False, **settings,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    return path


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, *events: Event) -> None:
        self.events += events


def run_case(config: dict[str, Any], data_dir: Path | None = None, rank: int = 0, world_size: int = 1) -> list[Event]:
    from accelerate.state import AcceleratorState

    from flagperf.worker.context import Context
    from flagperf_cases.llama2_7b_finetune.case import run

    AcceleratorState._reset_state()  # it is one per process, and refuses another precision
    backend, recorder = CpuBackend(), Recorder()
    activation = backend.activate(rank, 1, [Device(f"cpu:{slot}", "CPU", "CPU", slot) for slot in range(world_size)])
    context = Context(
        backend=backend, activation=activation, precision=precision(config["precision"]), config=config,
        sink=recorder, rank=rank, world_size=world_size, data_dir=data_dir,
    )  # fmt: skip
    run(context)
    return recorder.events


def run_ranks(folder: Path, world_size: int, runs: list[Changes]) -> list[list[list[Event]]]:
    """Events by run and rank, of processes that each do all the runs."""
    folder.mkdir()
    (folder / "changes.json").write_text(json.dumps(runs))
    environment = {**os.environ, "WORLD_SIZE": str(world_size), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), str(rank), str(world_size)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for rank in range(world_size)
    ]
    try:
        codes = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0] * world_size
    ranks = [
        msgspec.json.decode((folder / f"{rank}.json").read_bytes(), type=list[list[AnyEvent]])
        for rank in range(world_size)
    ]
    return [list(by_rank) for by_rank in zip(*ranks, strict=True)]


def steps(events: list[Event]) -> list[StepFinished]:
    return [event for event in events if isinstance(event, StepFinished)]


def reported(events: list[Event]) -> dict[str, float]:
    """The last value of every name."""
    return {name: value for event in events if isinstance(event, Reported) for name, value in event.values.items()}


def global_losses(ranks: list[list[Event]]) -> list[float]:
    """Loss of each step over all ranks, each rank by its real samples."""
    by_step = zip(*(steps(events) for events in ranks), strict=True)
    return [sum(s.loss * s.samples for s in step) / sum(s.samples for s in step) for step in by_step]


def main(folder: Path, rank: int, world_size: int) -> None:
    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    runs = [
        run_case(values(**changes), rank=rank, world_size=world_size)
        for changes in json.loads((folder / "changes.json").read_text())
    ]
    (folder / f"{rank}.json").write_bytes(msgspec.json.encode(runs))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)  # as a worker ends: native threads may abort the interpreter's own end

"""A training step of llama2_7b_finetune against a plain loop of transformers and peft."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.measure import Figure, NotMeasured, interleaved, seconds_of, throughput_ratio
from bench.workload import make_context
from flagperf.metrics.registry import vocabulary
from flagperf.spec.manifest_reading import read_manifest
from flagperf.spec.values import Layer, nest, resolve
from flagperf.worker import Context
from flagperf_cases.llama2_7b_finetune import case
from flagperf_cases.llama2_7b_finetune.case import build_model, trainable, training_loader
from flagperf_cases.llama2_7b_finetune.data import load_data
from flagperf_cases.sampler import TrainingSampler

NUM_PAIRS, STEPS_PER_TURN = 40, 2
CHANGES = {"lora.dropout": 0.0, "training.epochs": 1}
TOLERANCE = 1e-4


def measure() -> Iterator[Figure]:
    """Both train the same rows from the same weights. Their losses are checked to be equal."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        context = make_context(Path(folder) / "rank-00000.jsonl", _values())
        steps = _steps(context)
        with context.training():
            turns = _turns(context, steps)
    how = f"{NUM_PAIRS} alternating pairs of {STEPS_PER_TURN} steps, tiny profile, one thread; median, 95 % interval"
    same = throughput_ratio(turns["plain again"], turns["plain as well"])
    ratio = throughput_ratio(turns["plain"], turns["case"])
    yield Figure("llama_step_aa", str(same), "", None, f"plain over plain: {how}")
    yield Figure("llama_step", str(ratio), ">= 1.0", ratio.reaches(1.0), f"the case over the plain loop: {how}")


def _values() -> dict[str, Any]:
    manifest = read_manifest(Path(case.__file__).with_name("case.toml"), vocabulary())
    layers = [Layer("tiny", manifest.profiles["tiny"].values), Layer("bench", nest(CHANGES))]
    return resolve(manifest, layers).values


def _steps(context: Context) -> list[list[dict[str, Any]]]:
    training, data = context.config.training, load_data(context.config, None)
    sampler = TrainingSampler(
        len(data.train),
        batch_size=training.batch_size,
        accumulate=1,
        epochs=1,
        max_steps=0,
        seed=0,
        rank=0,
        world_size=1,
        shuffle=False,
    )
    return list(training_loader(data.train, sampler, num_workers=0))[:-1]  # the last one is short


def _turns(context: Context, steps: list[list[dict[str, Any]]]) -> dict[str, list[float]]:
    """An A/B and an A/A pair in every round; each program has a model of its own."""
    programs = {
        "plain": _plain(context, steps),
        "case": _case(context, steps),
        "plain again": _plain(context, steps),
        "plain as well": _plain(context, steps),
    }
    last = [program()[-1] for program in programs.values()]  # warm-up
    if max(last) - min(last) > TOLERANCE:
        raise NotMeasured(f"the programs do not train equally: {last}")
    return interleaved({name: partial(seconds_of, turn) for name, turn in programs.items()}, NUM_PAIRS)


def _case(context: Context, steps: list[list[dict[str, Any]]]) -> Callable[[], list[float]]:
    trainer = case.Trainer(context, _model(context))
    trainer.model.train()
    place = _Place(len(steps))

    def turn() -> list[float]:
        batches = context.batches(steps[index] for index in place.next())
        losses = [loss / rows for loss, rows in map(trainer.step, batches)]
        return [float(loss) for loss in losses]

    return turn


def _plain(context: Context, steps: list[list[dict[str, Any]]]) -> Callable[[], list[float]]:
    model = _model(context)
    model.train()
    optimizer = torch.optim.AdamW(trainable(model), lr=context.config.training.learning_rate, weight_decay=0.0)
    place = _Place(len(steps))

    def step(batch: dict[str, Any]) -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=batch["input_ids"], labels=batch["labels"], use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def turn() -> list[float]:
        losses = [step(steps[index][0]) for index in place.next()]
        return [float(loss) for loss in losses]

    return turn


def _model(context: Context) -> Any:
    torch.manual_seed(context.config.training.seed)
    return build_model(context.config, context.precision, None)


class _Place:
    """The position of a program in its rows, which it repeats."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._next = 0

    def next(self) -> list[int]:
        found = [(self._next + offset) % self._num_steps for offset in range(STEPS_PER_TURN)]
        self._next += STEPS_PER_TURN
        return found

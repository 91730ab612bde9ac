"""A training step of glm against a plain loop that does the same with the same libraries."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from bench.measure import Figure, NotMeasured, interleaved, seconds_of, throughput_ratio
from bench.workload import make_context
from flagperf.metrics.registry import vocabulary
from flagperf.spec.manifest_reading import read_manifest
from flagperf.spec.values import Layer, resolve
from flagperf.worker import Context
from flagperf_cases.glm import case
from flagperf_cases.glm.case import Glm, training_loader
from flagperf_cases.glm.data import load_data
from flagperf_cases.loss_scaling import make_updater

NUM_PAIRS, STEPS_PER_TURN = 40, 1
TARGET = 1.0

SHAPE = {"model": {"layers": 2, "width": 192, "ffn": 384}}
"""Far below the published size. Steps of the tiny profile would be dominated by Python overhead."""

Step = Callable[[list[dict[str, Any]]], None]


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        context = make_context(Path(folder) / "rank-00000.jsonl", _values())
        batches = _batches(context)
        models = _copies_of_one_model(context.config.model, 4)
        steps = {"case": _case_step(context, models[0])}
        for name, model in zip(("plain", "plain again", "plain as well"), models[1:], strict=True):
            steps[name] = _plain_step(model, context.config.training)
        with context.training():
            _check_equal_training(steps["case"], steps["plain"], models, batches)
            turns = interleaved({name: partial(_turn_seconds, steps[name], batches) for name in steps}, NUM_PAIRS)
    how = (
        f"median and 95 % interval (order statistics) of {NUM_PAIRS} alternating pairs of {STEPS_PER_TURN} step, "
        "one thread, 2 layers of width 192"
    )
    same = throughput_ratio(turns["plain again"], turns["plain as well"])
    ratio = throughput_ratio(turns["plain"], turns["case"])
    yield Figure("glm_step_aa", str(same), "", None, f"plain over plain: {how}")
    yield Figure("glm_step", str(ratio), f">= {TARGET}", ratio.reaches(TARGET), f"throughput, case over plain: {how}")


def _values() -> dict[str, Any]:
    manifest = read_manifest(Path(case.__file__).with_name("case.toml"), vocabulary())
    return resolve(manifest, [Layer("tiny", manifest.profiles["tiny"].values), Layer("shape", SHAPE)]).values


def _batches(context: Context) -> list[list[dict[str, Any]]]:
    samples, _ = load_data(context.config, None)
    loader = training_loader(samples, case.make_sampler(context, len(samples)), num_workers=0)
    return [micro_batches for micro_batches, _ in zip(loader, range(STEPS_PER_TURN), strict=False)]


def _copies_of_one_model(values: Any, num_copies: int) -> list[Any]:
    torch.manual_seed(0)
    model = Glm(values).train()
    return [copy.deepcopy(model) for _ in range(num_copies)]


def _case_step(context: Context, model: Any) -> Step:
    """The step of the case itself."""
    config, accelerator = context.config, context.accelerator()
    model = accelerator.prepare(model)
    optimizer = partial(case.make_optimizer, config=config)
    updater = make_updater(model.named_parameters(), context.precision, optimizer, config.training.clip)
    schedule = _schedule(updater.optimizer, config.training)
    return lambda micro_batches: case.train_step(context, accelerator, model, updater, schedule, micro_batches)


def _plain_step(model: Any, values: Any) -> Step:
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": weights, "weight_decay": values.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=values.learning_rate)
    schedule = _schedule(optimizer, values)

    def step(micro_batches: list[dict[str, Any]]) -> None:
        (batch,) = micro_batches
        scores = model(**batch["inputs"]).view(batch["candidates"].shape)
        scores = scores.masked_fill(~batch["candidates"], -10_000.0)
        cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), values.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    return step


def _schedule(optimizer: Any, values: Any) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, partial(case.rate_factor, num_steps=values.schedule_steps))


def _check_equal_training(
    case_step: Step, plain_step: Step, models: list[Any], batches: list[list[dict[str, Any]]]
) -> None:
    """Loops that train differently are not comparable. The first step has learning rate 0."""
    for micro_batches in batches * 3:
        case_step(micro_batches)
        plain_step(micro_batches)
    pairs = zip(models[0].parameters(), models[1].parameters(), strict=True)
    if not all(torch.allclose(one, other, rtol=1e-3, atol=1e-5) for one, other in pairs):
        raise NotMeasured("after the same steps the two loops have different weights")


def _turn_seconds(step: Step, batches: list[list[dict[str, Any]]]) -> float:
    def turn() -> None:
        for micro_batches in batches:
            step(micro_batches)

    return seconds_of(turn)

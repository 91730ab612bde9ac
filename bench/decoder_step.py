"""A training step of llama2_70b's decoder against transformers' Llama and against the same decoder in a bare loop; then
the same work on two processes, in tensor and in pipeline parallel."""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from bench.measure import Figure, MedianInterval, NotMeasured, interleaved, seconds_of, throughput_ratio
from bench.workload import make_context
from flagperf.metrics.registry import vocabulary
from flagperf.spec.manifest_reading import read_manifest
from flagperf.spec.values import Layer, resolve
from flagperf.worker import Context
from flagperf_cases.decoder.layout import Layout, shape_of
from flagperf_cases.decoder.parallel import Place, Trainer, build_model, find_place
from flagperf_cases.llama2_70b import case
from flagperf_cases.llama2_70b.data import load_data

NUM_PAIRS = 40
TARGET, BARE_TARGET = 1.0, 0.99
TOLERANCE = 1e-4
WAIT = timedelta(minutes=3)

CHANGES = {
    "parallel": {"tp": 1, "pp": 1, "dp": 1},
    "training": {"batch_size": 1, "accumulate": 4, "learning_rate": 1e-3, "lowest_learning_rate": 1e-4},
    "model": {"layers": 4, "width": 256, "heads": 8, "kv_heads": 4, "ffn": 704, "vocabulary": 1024, "sequence": 128},
}
"""Far below the published size. Steps of the tiny profile would be dominated by Python overhead."""

HOW = (
    f"median and 95 % interval (order statistics) of {NUM_PAIRS} alternating pairs of 1 step, one thread per process, "
    "4 layers of width 256"
)
LAYOUTS = {"one": Layout(), "tp2": Layout(tp=2), "pp2": Layout(pp=2)}

Batch = dict[str, torch.Tensor]
Step = Callable[[Batch], None]


def measure() -> Iterator[Figure]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        yield from _on_one_process(Path(folder))
        yield from _on_two_processes(Path(folder))


# --- one process ----------------------------------------------------------------------------------------------------


def _on_one_process(folder: Path) -> Iterator[Figure]:
    """In the order of a round the case is between the two that it is compared with; each of those has its own A/A
    neighbour."""
    context = make_context(folder / "alone.jsonl", _values())
    theirs, ours = partial(_transformers_step, context), partial(_bare_step, context)
    steps = {
        "transformers again": theirs(),
        "transformers": theirs(),
        "case": _case_step(context, Layout()),
        "bare": ours(),
        "bare again": ours(),
    }
    batches = itertools.cycle(_batches(context))
    with context.training():
        _check_equal_training(steps, batches)
        turns = interleaved({name: partial(_seconds, step, batches) for name, (step, _) in steps.items()}, NUM_PAIRS)
    ratio = partial(_ratio, turns)
    yield Figure("decoder_step_aa", str(ratio("transformers", "transformers again")), "", None, f"A/A: {HOW}")
    yield _judged("decoder_step", ratio("transformers", "case"), TARGET, "transformers' Llama")
    yield Figure("decoder_bare_aa", str(ratio("bare", "bare again")), "", None, f"A/A: {HOW}")
    yield _judged("decoder_bare", ratio("bare", "case"), BARE_TARGET, "the same decoder in a bare loop")


def _values() -> dict[str, Any]:
    manifest = read_manifest(Path(case.__file__).with_name("case.toml"), vocabulary())
    return resolve(manifest, [Layer("tiny", manifest.profiles["tiny"].values), Layer("bench", CHANGES)]).values


def _batches(context: Context) -> list[Batch]:
    training, samples = context.config.training, load_data(_values(), None)
    global_batch = training.batch_size * training.accumulate
    return list(case.batches(samples, Place(Layout(), None), global_batch, len(samples) // global_batch))


def _case_step(context: Context, layout: Layout) -> tuple[Step, Any]:
    """The step of the case itself."""
    training = context.config.training
    model = _model(context, layout)
    trainer = Trainer(
        model,
        find_place(layout, "cpu"),
        micro_batch=training.batch_size,
        num_micro_batches=training.accumulate,
        device="cpu",
    )
    optimizer = case.make_optimizer(model, training)

    def step(batch: Batch) -> None:
        for given in context.batches([batch]):
            case.train_step(context, trainer, optimizer, given)

    return step, model


def _transformers_step(context: Context) -> tuple[Step, Any]:
    model = LlamaForCausalLM(_llama_config(context))
    weights = _model(context, Layout()).state_dict()
    model.load_state_dict({name if name.startswith("lm_head") else f"model.{name}": weights[name] for name in weights})
    return _plain_step(context, model, lambda inputs: model(inputs, use_cache=False).logits), model


def _bare_step(context: Context) -> tuple[Step, Any]:
    model = _model(context, Layout())
    return _plain_step(context, model, model), model


def _plain_step(context: Context, model: Any, logits_of: Callable[[torch.Tensor], torch.Tensor]) -> Step:
    """The simplest correct loop: a mean over micro-batches, clipping, AdamW without weight decay of the norms."""
    training = context.config.training
    optimizer = case.make_optimizer(model, training)

    def step(batch: Batch) -> None:
        pairs = zip(batch["inputs"].chunk(training.accumulate), batch["labels"].chunk(training.accumulate), strict=True)
        for inputs, labels in pairs:
            loss = cross_entropy(logits_of(inputs).flatten(0, 1), labels.flatten())
            (loss / training.accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _model(context: Context, layout: Layout) -> Any:
    values = _values()["model"]
    place = find_place(layout, "cpu")
    seed = context.config.training.seed
    return build_model(shape_of(values), place, device="cpu", seed=seed, std=values["initial_std"])


def _llama_config(context: Context) -> Any:
    model = context.config.model
    return LlamaConfig(
        hidden_size=model.width,
        intermediate_size=model.ffn,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        vocab_size=model.vocabulary,
        max_position_embeddings=model.sequence,
        rms_norm_eps=model.norm_eps,
        tie_word_embeddings=False,
    )


def _check_equal_training(steps: dict[str, tuple[Step, Any]], batches: Iterator[Batch]) -> None:
    """Loops that train differently are not comparable."""
    first, *others = [next(batches) for _ in range(4)]
    losses = {}
    for name, (step, model) in steps.items():
        for batch in (first, *others):
            step(batch)
        losses[name] = _loss(model, first)
    if max(losses.values()) - min(losses.values()) > TOLERANCE:
        raise NotMeasured(f"after the same steps the loops have different losses: {losses}")


def _loss(model: Any, batch: Batch) -> float:
    with torch.no_grad():
        found = model(batch["inputs"])
    logits = found if isinstance(found, torch.Tensor) else found.logits
    return float(cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()))


def _seconds(step: Step, batches: Iterator[Batch]) -> float:
    batch = next(batches)
    return seconds_of(lambda: step(batch))


def _ratio(turns: dict[str, list[float]], base: str, other: str) -> MedianInterval:
    return throughput_ratio(turns[base], turns[other])


def _judged(name: str, ratio: MedianInterval, target: float, base: str) -> Figure:
    return Figure(name, str(ratio), f">= {target}", ratio.reaches(target), f"throughput, case over {base}: {HOW}")


# --- two processes --------------------------------------------------------------------------------------------------


def _on_two_processes(folder: Path) -> Iterator[Figure]:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        first, _ = pool.map(_rank_turns, [folder] * 2, range(2))
    for name in ("tp2", "pp2"):
        how = f"throughput of two processes over one, same work, 2 at most: {HOW}"
        yield Figure(f"decoder_{name}", str(_ratio(first, "one", name)), "", None, how)


def _rank_turns(folder: Path, rank: int) -> dict[str, list[float]]:
    """Both ranks take part in every turn. In the turns of one process the other rank sleeps in a barrier."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2, timeout=WAIT)
    context = make_context(folder / f"{rank}.jsonl", _values())
    batches = itertools.cycle(_batches(context))
    steps = {
        name: _case_step(context, layout)[0] if rank < layout.world_size else _no_step
        for name, layout in LAYOUTS.items()
    }
    with context.training():
        for step in steps.values():
            _together(step, next(batches))
        turns = interleaved(
            {name: partial(_together_seconds, step, batches) for name, step in steps.items()}, NUM_PAIRS
        )
    dist.destroy_process_group()
    return turns


def _no_step(_batch: Batch) -> None: ...


def _together(step: Step, batch: Batch) -> None:
    step(batch)
    dist.barrier()


def _together_seconds(step: Step, batches: Iterator[Batch]) -> float:
    batch = next(batches)
    return seconds_of(lambda: _together(step, batch))

"""What the ranks of the decoder's tests do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rank_processes import answers_of_ranks

from flagperf_cases.decoder.layout import DecoderShape, Layout

NUM_STEPS = 5
MICRO_BATCH, GLOBAL_BATCH = 1, 4
SEED = 7

Work = dict[str, Any]
"""{"shape": {...}, "layout": {...}, "clip": 0.1, ...}"""


def run_ranks(folder: Path, world_size: int, work: list[Work]) -> list[list[dict[str, Any]]]:
    """Answers by item and rank."""
    return answers_of_ranks(folder, world_size, answer, work, ["flagperf_cases.decoder.parallel"])


def answer(work: Work) -> dict[str, Any]:
    kinds = {"train": train, "grow": grow, "read": read}
    return kinds[work.get("kind", "train")](work)


def train(work: Work) -> dict[str, Any]:
    """A few steps of SGD on the same global batches whatever the layout is."""
    from flagperf_cases.decoder.parallel import Trainer, build_model, clip, find_place, total_norm

    shape, layout = DecoderShape(**work["shape"]), Layout(**work["layout"])
    place = find_place(layout, "cpu")
    autocast = torch.bfloat16 if work.get("bf16") else None
    model = build_model(
        shape, place, device="cpu", seed=SEED, std=0.2, recompute=work.get("recompute", False), autocast=autocast
    )
    initial = [(name, value.clone()) for name, value in gather_parameters(model)]
    num_micro_batches = GLOBAL_BATCH // MICRO_BATCH // layout.dp
    trainer = Trainer(model, place, micro_batch=MICRO_BATCH, num_micro_batches=num_micro_batches, device="cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses, norms = [], []
    for step in range(NUM_STEPS):
        mine = batch(shape, step)[place.dp_rank :: layout.dp]
        loss = trainer.backward(mine[:, :-1].contiguous(), mine[:, 1:].contiguous())
        norm = total_norm(model, place)
        clip(model, norm, work["clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(None if loss is None else float(loss))
        norms.append(float(norm))
    return {
        "losses": losses,
        "norms": norms,
        "initial": initial,
        "dp_rank": place.dp_rank,
        "final": [(name, value.clone()) for name, value in gather_parameters(model)],
    }


def gather_parameters(model: Any) -> list[tuple[str, Any]]:
    """All weights over tensor and data parallel ranks, by full name."""
    whole = ((name, getattr(value, "full_tensor", value.detach)()) for name, value in model.named_parameters())
    return list(whole)


def read(work: Work) -> dict[str, Any]:
    """Loss and gradient norm of one step with the weights of a safetensors file."""
    from safetensors.torch import load_file

    from flagperf_cases.decoder.model import fill, seed_name
    from flagperf_cases.decoder.parallel import Trainer, build_on_meta, find_place, total_norm

    shape, layout = DecoderShape(**work["shape"]), Layout(**work["layout"])
    place = find_place(layout, "cpu")
    model, weights = build_on_meta(shape, place), load_file(work["weights"])
    fill(model, "cpu", lambda name, _parameter: weights[f"model.{seed_name(model, name)}"])
    trainer = Trainer(model, place, micro_batch=MICRO_BATCH, num_micro_batches=GLOBAL_BATCH, device="cpu")
    rows = batch(shape, 0)
    loss = trainer.backward(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
    return {"loss": None if loss is None else float(loss), "norm": float(total_norm(model, place))}


def grow(work: Work) -> dict[str, Any]:
    """How much building this rank's part of a model raises the process's memory. It has to be the first item of its
    process, because the peak (VmHWM) never falls."""
    from flagperf_cases.decoder.parallel import build_model, find_place

    place = find_place(Layout(**work["layout"]), "cpu")
    before_bytes = _status_bytes("VmRSS")
    model = build_model(DecoderShape(**work["shape"]), place, device="cpu", seed=SEED, std=0.02)
    num_parameters = sum(_local_size(value) for value in model.parameters())
    return {"grown": _status_bytes("VmHWM") - before_bytes, "num_parameters": num_parameters}


def _local_size(parameter: Any) -> int:
    return int(parameter.to_local().numel() if hasattr(parameter, "to_local") else parameter.numel())


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def batch(shape: DecoderShape, step: int) -> Any:
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, shape.vocabulary, (GLOBAL_BATCH, shape.sequence + 1), generator=generator)

"""Scores a batch: negative log likelihoods, and whether the model would have chosen the last word.

The vocabulary may be split over tensor parallel ranks: each has the logits of its part, and no rank gathers them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp, all_reduce

from flagperf_cases.aquila_33b.data import Batch
from flagperf_cases.decoder.parallel import Place


class Scores(NamedTuple):
    """Per sample, on the device."""

    nll_sum: torch.Tensor
    num_tokens: torch.Tensor
    last_word_right: torch.Tensor


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    """Inputs, labels and two masks: positions that are scored, and those of the last word."""
    shape = (len(batch.rows), batch.length)
    inputs, labels = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    scored, last_word = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for index, row in enumerate(batch.rows):
        inputs[index, : row.length] = torch.tensor(row.tokens[:-1])
        labels[index, : row.length] = torch.tensor(row.tokens[1:])
        scored[index, : row.length] = True
        end = row.length - 1  # position of the end token
        last_word[index, end - row.last_word : end] = True
    return {"inputs": inputs, "labels": labels, "scored": scored, "last_word": last_word}


def score(logits: torch.Tensor, batch: dict[str, Any], place: Place) -> Scores:
    nll, is_best = _token_scores(logits.float(), batch["labels"], place)
    scored, last_word = batch["scored"], batch["last_word"]
    right = (is_best | ~last_word).all(1)
    return Scores((nll * scored).sum(1), scored.sum(1), right)


def _token_scores(logits: torch.Tensor, labels: torch.Tensor, place: Place) -> tuple[torch.Tensor, torch.Tensor]:
    """Per position the negative log likelihood of its label, and whether the label has the largest logit."""
    size = logits.shape[-1]
    own = labels - place.tp_rank * size
    is_here = (own >= 0) & (own < size)
    picked = logits.gather(-1, own.clamp(0, size - 1).unsqueeze(-1)).squeeze(-1) * is_here
    best = _reduced(logits.amax(-1), ReduceOp.MAX, place)
    total = _reduced((logits - best.unsqueeze(-1)).exp().sum(-1), ReduceOp.SUM, place)
    label_logit = _reduced(picked, ReduceOp.SUM, place)
    return total.log() + best - label_logit, label_logit >= best


def _reduced(values: torch.Tensor, how: Any, place: Place) -> torch.Tensor:
    if place.layout.tp > 1:
        all_reduce(values, how, group=place.part("tp").get_group())
    return values


def results(scores: Sequence[Scores]) -> dict[str, float]:
    """Over all samples, by the names of case.toml."""
    nll, count, right = (torch.cat(parts).cpu().double() for parts in zip(*scores, strict=True))
    loss = float((nll / count).mean())
    return {
        "loss": loss,
        "loss_per_token": float(nll.sum() / count.sum()),
        "perplexity": math.exp(min(loss, 700.0)),
        "acc": float(right.mean()),
        "evaluated": len(nll),
    }

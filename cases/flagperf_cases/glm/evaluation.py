"""Exact match and F1 on the evaluation queries, by candidate as published and by text as ReCoRD's own script does."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import torch

from flagperf.worker import Context
from flagperf_cases.evaluation_mode import evaluation_mode
from flagperf_cases.glm.data import make_inputs
from flagperf_cases.glm.samples import Sample, Samples
from flagperf_cases.sampler import evaluation_rows

SEQUENCES_PER_QUERY = 10
"""An evaluation batch holds this many sequences for each unit of evaluation.batch_size."""

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def evaluate(ctx: Context, model: Any, samples: Samples) -> float:
    """Accuracy over all ranks; every query is counted once."""
    num_rows = min(len(samples), ctx.config.evaluation.max_rows or len(samples))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluation_mode(model):
        guesses = best_candidates(ctx, model, samples, mine, evaluation.done)
        scores = [score_guess(samples.samples[row], guess) for row, guess in zip(mine, guesses, strict=True)]
        totals = [sum(column) for column in zip((0.0, 0.0, 0.0), *scores, strict=True)]  # a rank may have no row
        *sums, num_evaluated = ctx.sum_over_ranks(*totals, len(mine))
    accuracy, matched, overlap = (total / num_evaluated for total in sums)
    ctx.report(acc=accuracy, em=matched, f1=overlap, evaluated=num_evaluated)
    return accuracy


def best_candidates(
    ctx: Context, model: Any, samples: Samples, rows: Iterable[int], on_done: Callable[[int], None]
) -> list[int]:
    """Index of the best candidate of each row. A batch may end in the middle of a row's candidates."""
    pairs = [(row, index) for row in rows for index in range(len(samples.samples[row].candidates))]
    scores: list[torch.Tensor] = []
    batch_size = ctx.config.evaluation.batch_size * SEQUENCES_PER_QUERY
    for first in range(0, len(pairs), batch_size):
        batch = pairs[first : first + batch_size]
        inputs, _ = make_inputs(samples, batch)
        scores.append(model(**{name: tensor.to(ctx.device) for name, tensor in inputs.items()}))
        on_done(sum(candidate == 0 for _, candidate in batch))
    scored = zip(pairs, torch.cat(scores).tolist() if scores else (), strict=True)
    by_row = groupby(scored, key=lambda item: item[0][0])
    return [max(group, key=lambda item: item[1])[0][1] for _, group in by_row]


def score_guess(sample: Sample, guess: int) -> tuple[float, float, float]:
    """Right by index, exact match by text, F1 by words."""
    answers = [sample.texts[index] for index in sample.right]
    text = sample.texts[guess]
    return float(guess in sample.right), exact_match(text, answers), f1(text, answers)


# --- ReCoRD's own scores --------------------------------------------------------------------------------------------


def exact_match(guess: str, answers: Iterable[str]) -> float:
    return float(normalize(guess) in {normalize(answer) for answer in answers})


def f1(guess: str, answers: Iterable[str]) -> float:
    """Of the best answer."""
    return max(_word_f1(normalize(guess).split(), normalize(answer).split()) for answer in answers)


def normalize(text: str) -> str:
    """Lower case, without punctuation and articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def _word_f1(guess: list[str], answer: list[str]) -> float:
    """Harmonic mean of precision and recall over the words, with multiplicity."""
    common = (Counter(guess) & Counter(answer)).total()
    return 2 * common / (len(guess) + len(answer)) if common else 0.0

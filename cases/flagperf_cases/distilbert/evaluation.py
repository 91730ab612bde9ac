"""Accuracy of the model on the evaluation rows."""

from __future__ import annotations

from typing import Any

import torch

from flagperf.worker import Context
from flagperf_cases.distilbert.data import Sentences, padded_batch
from flagperf_cases.evaluation_mode import evaluation_mode
from flagperf_cases.sampler import evaluation_rows


def evaluate(ctx: Context, model: Any, sentences: Sentences) -> float:
    """Accuracy over all ranks; every row is counted once."""
    config = ctx.config
    num_rows = min(len(sentences.labels), config.evaluation.max_rows or len(sentences.labels))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluation_mode(model):
        correct = torch.zeros((), dtype=torch.long, device=ctx.device)
        for first in range(0, len(mine), config.evaluation.batch_size):
            batch = padded_batch(sentences, mine[first : first + config.evaluation.batch_size], config.model.sequence)
            inputs = {name: tensor.to(ctx.device) for name, tensor in batch.items()}
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
            correct += (logits.argmax(-1) == inputs["labels"]).sum()
            evaluation.done(len(logits))
        num_correct, num_evaluated = ctx.sum_over_ranks(int(correct), len(mine))
    accuracy = num_correct / num_evaluated
    ctx.report(acc=accuracy, evaluated=num_evaluated, correct=num_correct)
    return accuracy

"""The same logits at every number of tensor parallel ranks, whatever number of shards the checkpoint has."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from aquila_checkpoints import small_model, write_megatron
from aquila_ranks import Question, logits_of
from rank_processes import answers_of_ranks

from flagperf_cases.decoder.layout import DecoderShape

pytestmark = [pytest.mark.run, pytest.mark.full]

SHAPE = DecoderShape(layers=2, width=64, heads=16, kv_heads=8, ffn=48, vocabulary=56, sequence=64)
"""Eight heads of keys and values, as the published model has, and so one of them on each of eight ranks."""
NUM_RANKS, NUM_SHARDS, PADDED_VOCABULARY = 8, 2, 64
WAYS = (1, 2, 4, 8)


def test_logits_are_the_same_at_tp_1_2_4_and_8(tmp_path: Path) -> None:
    model = small_model(SHAPE, std=0.3)
    write_megatron(tmp_path, model, NUM_SHARDS, PADDED_VOCABULARY)
    source = random.Random(5)
    tokens = [[source.randrange(SHAPE.vocabulary) for _ in range(24)] for _ in range(2)]
    questions = [Question(tmp_path, SHAPE, ways, tokens) for ways in WAYS]
    answers = answers_of_ranks(tmp_path / "ranks", NUM_RANKS, logits_of, questions, ["flagperf_cases.aquila_33b.case"])
    with torch.inference_mode():
        expected = model(torch.tensor(tokens))
    tolerance = 1e-5 * float(expected.abs().max())
    for ways, by_rank in zip(WAYS, answers, strict=True):
        parts = [torch.from_numpy(part) for part in by_rank]
        assert {part.shape[-1] for part in parts} == {SHAPE.vocabulary // ways}
        for first in range(0, NUM_RANKS, ways):
            logits = torch.cat(parts[first : first + ways], -1)
            torch.testing.assert_close(logits, expected, rtol=0, atol=tolerance, msg=f"TP{ways}")

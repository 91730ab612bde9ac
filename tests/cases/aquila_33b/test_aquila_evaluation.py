"""The case itself: its losses against transformers' on real weights and text, the same at TP1 and TP2."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from case_harness import CaseHarness, only_report, steps

CASE = CaseHarness("aquila_33b")

pytestmark = pytest.mark.run

NUM_SAMPLES = 30
REAL = {
    "data__source": "lambada",
    "data__samples": NUM_SAMPLES,
    "model__checkpoint": "huggingface",
    "model__tied": True,
    "model__layers": 5,
    "model__width": 64,
    "model__heads": 8,
    "model__kv_heads": 4,
    "model__ffn": 172,
    "model__vocabulary": 512,
    "model__sequence": 1024,
    "inference__batch_size": 15,
}


def real_folder(folder: Path, shared_data: Path) -> Path:
    weights, texts = shared_data / "tiny_llama_stories260K", shared_data / "lambada/lambada_test.jsonl"
    for name in ("data", "tokenizer"):
        (folder / name).mkdir(parents=True)
    (folder / "data/lambada_test.jsonl").symlink_to(texts)
    (folder / "tokenizer/tokenizer.model").symlink_to(weights / "tok512.model")
    (folder / "hf").symlink_to(weights / "hf")
    return folder


def test_random_weights_know_nothing_and_real_tokens_are_counted() -> None:
    events = CASE.run(CASE.values(data__samples=20))
    assert only_report(events)["loss"] == pytest.approx(math.log(64), abs=0.3)
    assert only_report(events)["evaluated"] == 20
    counted = [(step.samples, step.tokens + step.padded_tokens) for step in steps(events)]
    assert [samples for samples, _ in counted] == [4] * 5
    assert all(positions % 8 == 0 for _, positions in counted)


def test_padding_changes_no_score() -> None:
    bucketed = only_report(CASE.run(CASE.values(data__samples=8)))
    padded = only_report(CASE.run(CASE.values(data__samples=8, inference__pad_to=64)))
    assert padded == pytest.approx(bucketed, abs=1e-5)


def test_sixteen_bits_score_as_fp32_but_for_rounding() -> None:
    exact, rounded = (only_report(CASE.run(CASE.values(data__samples=8, precision=name))) for name in ("fp32", "bf16"))
    assert rounded["loss"] == pytest.approx(exact["loss"], abs=0.02)
    assert rounded["loss"] != exact["loss"]


def test_real_losses_are_those_of_transformers_at_tp1_and_tp2(shared_data: Path, tmp_path: Path) -> None:
    config, folder = CASE.values(**REAL), real_folder(tmp_path / "real", shared_data)
    alone = only_report(CASE.run(config, folder))
    theirs = by_transformers(config, folder)
    ((first, second),) = CASE.run_ranks(tmp_path / "ranks", 2, [REAL], [folder])
    assert only_report(first) == only_report(second)
    for found in (alone, only_report(first)):
        assert {name: found[name] for name in theirs} == pytest.approx(theirs, abs=1e-4)


def by_transformers(config: dict[str, Any], folder: Path) -> dict[str, float]:
    """Sample by sample, without padding."""
    from torch.nn.functional import cross_entropy
    from transformers import LlamaForCausalLM

    from flagperf_cases.aquila_33b.data import load_data

    model = LlamaForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32).eval()
    means, sums, right, count = [], 0.0, 0, 0
    for row in load_data(config, folder).rows:
        tokens = torch.tensor([row.tokens])
        with torch.inference_mode():
            logits = model(tokens[:, :-1]).logits[0]
        nll = cross_entropy(logits, tokens[0, 1:], reduction="none")
        means.append(float(nll.mean()))
        sums, count = sums + float(nll.sum()), count + len(nll)
        word = slice(-1 - row.last_word, -1)
        right += bool((logits.argmax(-1)[word] == tokens[0, 1:][word]).all())
    return {"loss": sum(means) / len(means), "loss_per_token": sums / count, "acc": right / len(means)}

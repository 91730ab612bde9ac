"""The case itself: its losses against transformers' on real weights and text, the same at TP1 and TP2."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
from aquila_checkpoints import SMALL_CHANGES, small_model, write_megatron
from case_harness import CaseHarness, only_report, steps

CASE = CaseHarness("aquila_33b")

pytestmark = pytest.mark.run

NUM_SAMPLES = 500
REAL = {
    "data__source": "lambada", "data__samples": NUM_SAMPLES, "model__checkpoint": "huggingface", "model__tied": True,
    "model__layers": 5, "model__width": 64, "model__heads": 8, "model__kv_heads": 4, "model__ffn": 172,
    "model__vocabulary": 512, "model__sequence": 1024, "inference__batch_size": 50,
}  # fmt: skip
FROM_SHARDS = {**SMALL_CHANGES, "model__checkpoint": "megatron", "data__samples": 12}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def megatron_folder(folder: Path) -> Path:
    write_megatron(folder, small_model(), 8, padded_vocabulary=64)
    return folder


def real_folder(folder: Path, shared_data: Path) -> Path:
    weights, texts = shared_data / "tiny_llama_stories260K", shared_data / "lambada/lambada_test.jsonl"
    for name in ("data", "tokenizer"):
        (folder / name).mkdir(parents=True)
    (folder / "data/lambada_test.jsonl").symlink_to(texts)
    (folder / "tokenizer/tokenizer.model").symlink_to(weights / "tok512.model")
    (folder / "hf").symlink_to(weights / "hf")
    return folder


@pytest.fixture(scope="module")
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Without the real data only the shards, which need none."""
    home = tmp_path_factory.mktemp("aquila")
    found = {"shards": megatron_folder(home / "shards")}
    with contextlib.suppress(pytest.skip.Exception):
        found["real"] = real_folder(home / "real", request.getfixturevalue("shared_data"))
    return found


@pytest.fixture(scope="module")
def at_tp2(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """Reports of two ranks, from one group of processes."""
    changes = {"shards": FROM_SHARDS, "real": REAL}
    home = tmp_path_factory.mktemp("tp2") / "ranks"
    runs = CASE.run_ranks(home, 2, [changes[name] for name in folders], list(folders.values()))
    assert all(only_report(first) == only_report(second) for first, second in runs)
    return {name: only_report(first) for name, (first, _) in zip(folders, runs, strict=True)}


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


def test_shards_give_the_same_scores_at_tp1_and_tp2(
    folders: dict[str, Path], at_tp2: dict[str, dict[str, float]]
) -> None:
    alone = only_report(CASE.run(CASE.values(**FROM_SHARDS), folders["shards"]))
    assert at_tp2["shards"] == pytest.approx(alone, rel=1e-5)


@pytest.mark.usefixtures("shared_data")
def test_real_losses_are_those_of_transformers_at_tp1_and_tp2(
    folders: dict[str, Path], at_tp2: dict[str, dict[str, float]]
) -> None:
    config, folder = CASE.values(**REAL), folders["real"]
    alone = only_report(CASE.run(config, folder))
    theirs = by_transformers(config, folder)
    for found in (alone, at_tp2["real"]):
        assert {name: found[name] for name in theirs} == pytest.approx(theirs, abs=1e-4)


def by_transformers(config: dict[str, Any], folder: Path) -> dict[str, float]:
    """Sample by sample, without padding."""
    import torch
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

"""The case itself: its losses against transformers' on real weights and text, the same at TP1 and TP2."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from aquila_harness import DATA, SMALL_CHANGES, report, run_case, run_ranks, small_model, values, write_megatron
from case_harness import steps

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


def real_folder(folder: Path) -> Path | None:
    weights, texts = DATA / "tiny_llama_stories260K", DATA / "lambada/lambada_test.jsonl"
    if not (weights.is_dir() and texts.is_file()):
        return None
    for name in ("data", "tokenizer"):
        (folder / name).mkdir(parents=True)
    (folder / "data/lambada_test.jsonl").symlink_to(texts)
    (folder / "tokenizer/tokenizer.model").symlink_to(weights / "tok512.model")
    (folder / "hf").symlink_to(weights / "hf")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | None]:
    home = tmp_path_factory.mktemp("aquila")
    return {"shards": megatron_folder(home / "shards"), "real": real_folder(home / "real")}


@pytest.fixture(scope="module")
def at_tp2(folders: dict[str, Path | None], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """Reports of two ranks, from one group of processes: shards first, then the real weights where they are here."""
    changes = {"shards": FROM_SHARDS, "real": REAL}
    present = [name for name in changes if folders[name]]
    runs = run_ranks(
        tmp_path_factory.mktemp("tp2") / "ranks", 2,
        [changes[name] for name in present], [folders[name] for name in present],
    )  # fmt: skip
    assert all(report(first) == report(second) for first, second in runs)
    return [report(first) for first, _ in runs]


def test_random_weights_know_nothing_and_real_tokens_are_counted() -> None:
    events = run_case(values(data__samples=20))
    assert report(events)["loss"] == pytest.approx(math.log(64), abs=0.3)
    assert report(events)["evaluated"] == 20
    counted = [(step.samples, step.tokens + step.padded_tokens) for step in steps(events)]
    assert [samples for samples, _ in counted] == [4] * 5
    assert all(positions % 8 == 0 for _, positions in counted)


def test_padding_changes_no_score() -> None:
    bucketed = report(run_case(values(data__samples=8)))
    padded = report(run_case(values(data__samples=8, inference__pad_to=64)))
    assert padded == pytest.approx(bucketed, abs=1e-5)


def test_sixteen_bits_score_as_fp32_but_for_rounding() -> None:
    exact, rounded = (report(run_case(values(data__samples=8, precision=name))) for name in ("fp32", "bf16"))
    assert rounded["loss"] == pytest.approx(exact["loss"], abs=0.02)
    assert rounded["loss"] != exact["loss"]


def test_shards_give_the_same_scores_at_tp1_and_tp2(
    folders: dict[str, Path | None], at_tp2: list[dict[str, float]]
) -> None:
    alone = report(run_case(values(**FROM_SHARDS), folders["shards"]))
    assert at_tp2[0] == pytest.approx(alone, rel=1e-5)


def test_real_losses_are_those_of_transformers_at_tp1_and_tp2(
    folders: dict[str, Path | None], at_tp2: list[dict[str, float]]
) -> None:
    folder = folders["real"]
    if folder is None:
        assert not (os.environ.get("CI") == "true" and DATA.is_dir()), f"weights or texts are missing in {DATA}"
        pytest.skip(f"weights or texts are not in {DATA}")
    config = values(**REAL)
    alone = report(run_case(config, folder))
    theirs = by_transformers(config, folder)
    for found in (alone, at_tp2[1]):
        assert {name: found[name] for name in theirs} == pytest.approx(theirs, abs=1e-4)


def by_transformers(config: dict[str, Any], folder: Path) -> dict[str, float]:
    """Sample by sample, without padding."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import LlamaForCausalLM

    from flagperf_cases.aquila_33b.data import load_samples

    model = LlamaForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32).eval()
    means, sums, right, count = [], 0.0, 0, 0
    for row in load_samples(config, folder).rows:
        tokens = torch.tensor([row.tokens])
        with torch.inference_mode():
            logits = model(tokens[:, :-1]).logits[0]
        nll = cross_entropy(logits, tokens[0, 1:], reduction="none")
        means.append(float(nll.mean()))
        sums, count = sums + float(nll.sum()), count + len(nll)
        word = slice(-1 - row.last_word, -1)
        right += bool((logits.argmax(-1)[word] == tokens[0, 1:][word]).all())
    return {"loss": sum(means) / len(means), "loss_per_token": sums / count, "acc": right / len(means)}

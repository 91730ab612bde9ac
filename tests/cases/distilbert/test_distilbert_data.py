"""The sentences and the batches made of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from case_harness import CaseHarness

from flagperf_cases.distilbert.case import training_loader
from flagperf_cases.distilbert.data import CHECKPOINT, Sentences, load_data, sst2, synthetic_sentences
from flagperf_cases.sampler import TrainingSampler

CASE = CaseHarness("distilbert")


def settings(**changes: object) -> SimpleNamespace:
    found = CASE.values("tiny", **changes)
    return SimpleNamespace(data=SimpleNamespace(**found["data"]), model=SimpleNamespace(**found["model"]))


def test_made_up_sentences_are_balanced_and_always_the_same() -> None:
    first, again = (synthetic_sentences("train", 500, 100, 32) for _ in range(2))
    assert first.sha256 == again.sha256 != synthetic_sentences("eval", 500, 100, 32).sha256
    assert sum(first.labels) == 250


def test_made_up_lengths_vary_and_say_nothing_about_the_label() -> None:
    sentences = synthetic_sentences("train", 4000, 100, 32)
    lengths = {
        label: [len(t) for t, own in zip(sentences.tokens, sentences.labels, strict=True) if own == label]
        for label in (0, 1)
    }
    assert all(8 <= min(each) < 12 and 28 < max(each) <= 32 for each in lengths.values())
    assert sum(lengths[0]) / 2000 == pytest.approx(sum(lengths[1]) / 2000, rel=0.03)


def test_shuffled_labels_keep_their_number_and_lose_their_sentence() -> None:
    plain, _ = load_data(settings(), None)
    shuffled, _ = load_data(settings(data__shuffle_labels=True), None)
    assert plain.tokens == shuffled.tokens
    assert sum(plain.labels) == sum(shuffled.labels)
    same = sum(a == b for a, b in zip(plain.labels, shuffled.labels, strict=True)) / len(plain.labels)
    assert 0.45 < same < 0.55


def test_repeated_rows_count_as_padding() -> None:
    sentences = Sentences("three", [[1, 5, 2], [1, 5, 6, 2], [1, 2]], [0, 1, 1])
    rows = TrainingSampler(3, batch_size=2, accumulate=1, epochs=1, max_steps=0, seed=0, rank=1, world_size=2)
    (step,) = training_loader(sentences, rows, sequence=8, num_workers=0)
    (batch,) = step
    assert batch["weights"].tolist() == [1, 0]
    real = sentences.tokens[next(iter(rows))[0].rows[0]]
    assert (batch["samples"], batch["tokens"], batch["padded_tokens"]) == (1, len(real), 16 - len(real))
    assert batch["input_ids"][0].tolist() == real + [0] * (8 - len(real))
    assert batch["attention_mask"][0].sum() == len(real)


def test_loader_processes_give_the_same_batches_in_every_epoch() -> None:
    sentences = synthetic_sentences("train", 40, 100, 32)
    for epoch in range(2):
        batches = []
        for num_workers in (0, 2):
            rows = TrainingSampler(40, batch_size=4, accumulate=2, epochs=2, max_steps=0, seed=0, rank=0, world_size=1)
            loader = training_loader(sentences, rows, 32, num_workers)
            for rows.epoch in range(epoch + 1):
                steps = list(loader)
            batches.append([batch["input_ids"].tolist() for step in steps for batch in step])
        assert batches[0] == batches[1]


def test_sst2_is_tokenised_as_bert_does(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "SST-2").symlink_to(shared_data / "sst2/SST-2")
    (tmp_path / CHECKPOINT).symlink_to(shared_data / "tokenizers/bert-base-uncased")
    validation = sst2(tmp_path, "dev", 0, 512)
    lengths = [len(tokens) for tokens in validation.tokens]
    assert (len(lengths), max(lengths)) == (872, 55)
    assert sum(lengths) / 872 == pytest.approx(25.16, abs=0.01)
    assert sum(validation.labels) / 872 == pytest.approx(0.509, abs=0.0005)
    assert {tokens[0] for tokens in validation.tokens} == {101}
    assert {tokens[-1] for tokens in validation.tokens} == {102}
    first, _, third = sst2(tmp_path, "dev", 3, 16).tokens
    # it ' s a charming and often affecting journey .
    assert first == [101, 2009, 1005, 1055, 1037, 11951, 1998, 2411, 12473, 4990, 1012, 102]
    assert (len(third), third[-1]) == (16, 102)

"""distilbert: its sentences and batches, the checkpoint's way into the model, and what can be learned."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from case_harness import CaseHarness, reports, steps

from flagperf_cases.distilbert.case import build_model, matmul_parameters, training_loader
from flagperf_cases.distilbert.data import (
    CHECKPOINT,
    Sentences,
    encoder_shapes,
    load_data,
    sst2,
    synthetic_sentences,
)
from flagperf_cases.sampler import TrainingSampler

CASE = CaseHarness("distilbert")


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
    plain, _ = load_data(CASE.settings(), None)
    shuffled, _ = load_data(CASE.settings(data__shuffle_labels=True), None)
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


# --- the model ---


def model_values(profile: str = "tiny", **changes: Any) -> SimpleNamespace:
    found = CASE.values(profile, **{f"model__{key}": value for key, value in changes.items()})
    return SimpleNamespace(**found["model"])


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any]:
    """A data folder with a masked-LM checkpoint of 3 layers and 40 positions, and the model it was saved from."""
    config = transformers.DistilBertConfig(
        n_layers=3, dim=64, n_heads=4, hidden_dim=128, vocab_size=100, max_position_embeddings=40
    )
    torch.manual_seed(7)
    model = transformers.DistilBertForMaskedLM(config)
    model.save_pretrained(tmp_path / CHECKPOINT)
    return tmp_path, model


def as_pickle(data_dir: Path) -> None:
    folder = data_dir / CHECKPOINT
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def test_standard_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        model = build_model(model_values("standard", checkpoint=False))
    assert sum(parameter.numel() for parameter in model.parameters()) == 66_955_010
    assert matmul_parameters(model_values("standard")) == 42_467_328
    config = model.config
    assert (config.dropout, config.attention_dropout, config.seq_classif_dropout, config.num_labels) == (
        0.1,
        0.1,
        0.2,
        2,
    )


@pytest.mark.parametrize("form", ["safetensors", "pickle"])
def test_the_encoder_comes_from_the_checkpoint_and_the_classifier_from_the_seed(
    saved: tuple[Path, Any], form: str
) -> None:
    data_dir, original = saved
    if form == "pickle":
        as_pickle(data_dir)
    torch.manual_seed(0)
    model = build_model(model_values(layers=3, sequence=40, checkpoint=True), data_dir)
    torch.manual_seed(0)
    fresh = build_model(model_values(layers=3, sequence=40))
    for name, tensor in original.distilbert.state_dict().items():
        assert torch.equal(model.distilbert.state_dict()[name], tensor), name
    assert torch.equal(model.classifier.weight, fresh.classifier.weight)
    assert not torch.equal(
        model.distilbert.embeddings.word_embeddings.weight, fresh.distilbert.embeddings.word_embeddings.weight
    )


def test_a_smaller_model_takes_the_first_layers_and_positions(saved: tuple[Path, Any]) -> None:
    data_dir, original = saved
    model = build_model(model_values(layers=1, sequence=32, checkpoint=True), data_dir)
    assert len(model.distilbert.transformer.layer) == 1
    positions = original.distilbert.embeddings.position_embeddings.weight
    assert torch.equal(model.distilbert.embeddings.position_embeddings.weight, positions[:32])


def test_an_encoder_saved_without_a_head_is_read_too(saved: tuple[Path, Any]) -> None:
    data_dir, original = saved
    original.distilbert.save_pretrained(data_dir / CHECKPOINT)
    model = build_model(model_values(layers=3, sequence=40, checkpoint=True), data_dir)
    expected = original.distilbert.embeddings.word_embeddings.weight
    assert torch.equal(model.distilbert.embeddings.word_embeddings.weight, expected)


def test_the_weights_that_are_looked_for_before_a_run_are_those_of_the_model() -> None:
    with torch.device("meta"):
        state = build_model(model_values("standard", checkpoint=False)).state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in state.items() if name.startswith("distilbert.")}
    assert encoder_shapes(vars(model_values("standard"))) == expected


# --- learning ---

FAST = {"data__rows": 512, "training__learning_rate": 3e-3}
"""Learns within two epochs."""


@pytest.mark.full
def test_training_stops_after_the_epoch_that_reaches_the_target() -> None:
    """That tiny reaches its own target is shown by the real command, in tests/e2e/test_distilbert_run.py."""
    events = CASE.run(CASE.values("tiny", **FAST, evaluation__target=0.55))
    found = [report["acc"] for report in reports(events)]
    assert found[0] == pytest.approx(0.5, abs=0.05)
    assert max(found[:-1]) < 0.55 <= found[-1]
    assert len(steps(events)) == 16 * (len(found) - 1) < 16 * 8


@pytest.mark.full
def test_shuffled_labels_stay_at_chance() -> None:
    changes = {**FAST, "data__shuffle_labels": True, "training__epochs": 3}
    assert reports(CASE.run(CASE.values("tiny", **changes)))[-1]["acc"] == pytest.approx(0.5, abs=0.05)


def test_a_frozen_model_misses_the_target() -> None:
    events = CASE.run(CASE.values("tiny", model__frozen=True, training__max_steps=8))
    found = reports(events)
    assert found[-1] == found[0]
    assert found[-1]["acc"] < 0.6
    assert len(steps(events)) == 8


@pytest.mark.full
@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
def test_other_precisions_learn_too(precision: str) -> None:
    short = {"training__max_steps": 30, "data__eval_rows": 50}
    losses = [step.loss for step in steps(CASE.run(CASE.values("tiny", precision=precision, **short)))]
    exact = steps(CASE.run(CASE.values("tiny", **{**short, "training__max_steps": 1})))[0].loss
    assert losses[0] == pytest.approx(exact, rel=0.05)
    assert losses[0] != exact  # it did compute otherwise
    assert sum(losses[-5:]) < sum(losses[:5])

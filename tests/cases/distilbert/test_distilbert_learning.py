"""The case learns what can be learned, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_harness import CaseHarness, moments, reports, steps

from flagperf.events import DataDescribed, ModelDescribed
from flagperf_cases.distilbert.data import CHECKPOINT, check_files

CASE = CaseHarness("distilbert")

pytestmark = pytest.mark.run


FAST = {"data__rows": 512, "training__learning_rate": 3e-3}
"""Learns within two epochs."""


def test_training_stops_after_the_epoch_that_reaches_the_target() -> None:
    """That tiny reaches its own target is shown by the real command, in tests/e2e/test_distilbert_run.py."""
    events = CASE.run(CASE.values("tiny", **FAST, evaluation__target=0.55))
    found = [report["acc"] for report in reports(events)]
    assert found[0] == pytest.approx(0.5, abs=0.05)
    assert max(found[:-1]) < 0.55 <= found[-1]
    assert len(steps(events)) == 16 * (len(found) - 1) < 16 * 8


def test_the_events_tell_what_was_done() -> None:
    events = CASE.run(
        CASE.values("tiny", data__rows=70, data__eval_rows=37, training__epochs=2, evaluation__max_rows=20)
    )
    kinds = moments(events)
    assert kinds.count("evaluation ended") == 3
    assert kinds.index("evaluation ended") < kinds.index("training began")  # the first evaluation is not training time
    assert kinds[-1] == "training ended"
    assert [(event.name, event.rows) for event in events if isinstance(event, DataDescribed)] == [
        ("synthetic train", 70),
        ("synthetic eval", 37),
    ]
    (model,) = [event for event in events if isinstance(event, ModelDescribed)]
    assert (model.layers, model.heads, model.head_size, model.sequence, model.causal) == (2, 4, 16, 32, False)
    assert model.matmul_parameters == 2 * (4 * 64 * 64 + 2 * 64 * 128)
    assert {report["evaluated"] for report in reports(events)} == {20}
    assert [step.samples for step in steps(events)] == [32, 32, 6] * 2
    assert all(step.tokens + step.padded_tokens == 32 * step.samples for step in steps(events))
    assert all(0 < step.tokens < 32 * step.samples for step in steps(events))


def test_max_steps_ends_the_run_with_an_evaluation() -> None:
    events = CASE.run(CASE.values("tiny", training__max_steps=3, data__eval_rows=50))
    assert len(steps(events)) == 3
    assert moments(events).count("evaluation ended") == 2


def test_shuffled_labels_stay_at_chance() -> None:
    changes = {**FAST, "data__shuffle_labels": True, "training__epochs": 3}
    assert reports(CASE.run(CASE.values("tiny", **changes)))[-1]["acc"] == pytest.approx(0.5, abs=0.05)


def test_a_frozen_model_misses_the_target() -> None:
    events = CASE.run(CASE.values("tiny", model__frozen=True, training__max_steps=8))
    found = reports(events)
    assert found[-1] == found[0]
    assert found[-1]["acc"] < 0.6
    assert len(steps(events)) == 8


@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
def test_other_precisions_learn_too(precision: str) -> None:
    short = {"training__max_steps": 30, "data__eval_rows": 50}
    losses = [step.loss for step in steps(CASE.run(CASE.values("tiny", precision=precision, **short)))]
    exact = steps(CASE.run(CASE.values("tiny", **{**short, "training__max_steps": 1})))[0].loss
    assert losses[0] == pytest.approx(exact, rel=0.05)
    assert losses[0] != exact  # it did compute otherwise
    assert sum(losses[-5:]) < sum(losses[:5])


# --- real data ------------------------------------------------------------------------------------------------------


@pytest.fixture
def real_data(shared_data: Path, tmp_path: Path) -> Path:
    (tmp_path / "SST-2").symlink_to(shared_data / "sst2/SST-2")
    (tmp_path / CHECKPOINT).mkdir()
    (tmp_path / CHECKPOINT / "vocab.txt").symlink_to(shared_data / "tokenizers/bert-base-uncased/vocab.txt")
    return tmp_path


def test_a_small_model_learns_real_sentences(real_data: Path) -> None:
    config = CASE.values(
        "tiny",
        data__source="sst2",
        data__rows=2500,
        data__eval_rows=0,
        model__vocabulary=30522,
        model__sequence=32,
        model__layers=1,
        training__batch_size=64,
        training__epochs=2,
        training__learning_rate=2e-3,
    )
    check_files(real_data, config)
    events = CASE.run(config, real_data)
    losses = [step.loss for step in steps(events)]
    assert sum(losses[-10:]) / 10 < 0.8 * sum(losses[:10]) / 10
    assert reports(events)[-1]["evaluated"] == 872
    assert reports(events)[-1]["acc"] > 0.62  # 0.51 is the more frequent label

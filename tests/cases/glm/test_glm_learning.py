"""The case learns what can be learned, and nothing else."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from case_harness import CaseHarness, moments, reports, steps

from flagperf.events import SpanEnded

CASE = CaseHarness("glm")

pytestmark = pytest.mark.run

CHANCE = 0.29
"""Three or four candidates."""

SHORT = {"data__rows": 40, "data__eval_rows": 9, "model__width": 16, "training__batch_size": 4}


@pytest.mark.full
def test_tiny_reaches_its_target_and_stops_there() -> None:
    events = CASE.run(CASE.values("tiny"))
    found = [report["acc"] for report in reports(events)]
    target = CASE.values("tiny")["evaluation"]["target"]
    assert found[0] == pytest.approx(CHANCE, abs=0.1)
    assert found[-1] >= target
    assert all(accuracy < target for accuracy in found[:-1])
    assert len(steps(events)) == 50 * (len(found) - 1)
    assert reports(events)[-1]["em"] == found[-1] <= reports(events)[-1]["f1"]


@pytest.mark.full
def test_with_the_passages_of_others_nothing_is_learnt() -> None:
    found = reports(CASE.run(CASE.values("tiny", data__swap_passages=True, training__max_samples=1600)))
    assert found[-1]["acc"] == pytest.approx(CHANCE, abs=0.1)


def test_a_frozen_model_stays_as_it_was() -> None:
    events = CASE.run(CASE.values("tiny", **SHORT, model__frozen=True, training__max_samples=40))
    first, last = reports(events)
    assert first == last
    assert len(steps(events)) == 10


def test_the_events_tell_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {"training__max_samples": 46, "evaluation__every_samples": 17, "evaluation__max_rows": 5}
    events = CASE.run(CASE.values("tiny", **SHORT, **changes, evaluation__target=1.0))
    kinds = moments(events)
    assert kinds[-1] == "training ended"
    assert {report["evaluated"] for report in reports(events)} == {5}
    assert [step.samples for step in steps(events)] == [4] * 12  # 10 of the first epoch, 2 of the second
    evaluated_after = [event.step for event in events if isinstance(event, SpanEnded) and event.name == "evaluation"]
    assert evaluated_after == [0, 5, 10, 12]  # every 5 steps have seen 17 samples
    for step in steps(events):
        assert step.tokens + step.padded_tokens in (3 * 4 * 36, 4 * 4 * 36)  # every sequence, also repeated ones
        assert step.tokens < step.padded_tokens + step.tokens
    assert list(tmp_path.iterdir()) == []  # nothing is left in the working directory


def test_the_learning_rate_rises_falls_and_stays() -> None:
    from flagperf_cases.glm.case import rate_factor

    factors = [rate_factor(step, 4338) for step in (0, 217, 433, 434, 2386, 4338, 9999)]
    expected = [0, 217 / 433.8, 433 / 433.8, 1 - 0.9 * 0.2 / 3904.2, 1 - 0.9 * 1952.2 / 3904.2, 0.1, 0.1]
    assert factors == pytest.approx(expected)
    assert all(
        later < earlier for earlier, later in itertools.pairwise(rate_factor(step, 100) for step in range(10, 100))
    )


def test_biases_and_norms_do_not_decay() -> None:
    from flagperf_cases.glm.case import Glm, make_optimizer

    found = CASE.values("tiny")
    config = SimpleNamespace(**{name: SimpleNamespace(**found[name]) for name in ("model", "training")})
    model = Glm(config.model)
    decayed, plain = make_optimizer(list(model.named_parameters()), config).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert {names[id(p)].rsplit(".", 1)[1] for p in decayed["params"]} == {"weight"}
    assert not any("layernorm" in names[id(p)] for p in decayed["params"])
    assert all("layernorm" in names[id(p)] or names[id(p)].endswith("bias") for p in plain["params"])
    assert len(decayed["params"]) + len(plain["params"]) == len(names)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_other_precisions_learn_too(precision: str) -> None:
    short = {**SHORT, "data__rows": 16, "training__batch_size": 8, "training__schedule_steps": 20}
    losses = [
        [step.loss for step in steps(CASE.run(CASE.values("tiny", **short, precision=each, training__max_samples=400)))]
        for each in ("fp32", precision)
    ]
    assert losses[1][0] == pytest.approx(losses[0][0], rel=0.02)
    assert losses[1][0] != losses[0][0]  # it did compute otherwise
    assert sum(losses[1][-4:]) < 0.9 * sum(losses[1][:4])


ONE_BATCH = {**SHORT, "data__rows": 4, "training__max_samples": 32}


def test_overflows_skip_the_step_and_do_not_move_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale begins so high that the first gradients overflow: the same rows then have the same loss again."""
    from flagperf_cases.glm import case

    asked: list[int] = []
    factor = case.rate_factor
    monkeypatch.setattr(case, "rate_factor", lambda step, num_steps: asked.append(step) or factor(step, num_steps))
    losses = [step.loss for step in steps(CASE.run(CASE.values("tiny", **ONE_BATCH, precision="fp16")))]
    assert losses == pytest.approx([losses[0]] * 8, rel=1e-5)
    assert set(asked) == {0}
    moving = [step.loss for step in steps(CASE.run(CASE.values("tiny", **ONE_BATCH)))]
    assert moving[-1] < 0.999 * moving[0]
    assert set(asked) == set(range(9))


def test_gradients_are_clipped() -> None:
    """A step of plain descent is as long as its gradient, which clipping makes next to nothing."""
    sgd = {
        **ONE_BATCH,
        "training__optimizer": "sgd",
        "training__learning_rate": 2.0,
        "training__schedule_steps": 8,
        "training__weight_decay": 0.0,
    }
    losses = {
        clip: [step.loss for step in steps(CASE.run(CASE.values("tiny", **sgd, training__clip=clip)))]
        for clip in (1e-9, 0.0)
    }
    assert losses[1e-9] == pytest.approx([losses[1e-9][0]] * 8, rel=1e-5)
    assert losses[0.0][-1] < 0.99 * losses[0.0][0]

"""The case learns what can be learned, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness, moments, reported, steps

from flagperf.events import (
    DataDescribed,
    Event,
    ModelDescribed,
    PartsReported,
    Reported,
)
from flagperf_cases.llama2_7b_finetune.data import check_files

CASE = CaseHarness("llama2_7b_finetune")

pytestmark = pytest.mark.run

TARGET = CASE.values("tiny")["evaluation"]["target"]
SHORT = {
    "training__max_steps": 10,
    "training__learning_rate": 2e-2,
    "data__eval_rows": 2,
    "evaluation__questions": 1,
    "model__sequence": 48,
}


@pytest.fixture(scope="module")
def tiny() -> list[Event]:
    return CASE.run(CASE.values("tiny"))


def test_tiny_reaches_its_target(tiny: list[Event]) -> None:
    found, losses = reported(tiny), [step.loss for step in steps(tiny)]
    assert found["acc(MMLU)"] >= TARGET + 0.05
    assert found["val_loss"] < 0.5 * losses[0]
    assert found["test_loss"] == pytest.approx(found["val_loss"], abs=0.3)
    assert losses[-1] < found["loss"] < losses[0]


def test_the_events_tell_what_was_done(tiny: list[Event]) -> None:
    kinds = moments(tiny)
    assert (
        kinds.count("evaluation ended") == 1 + 3 + 2
    )  # before training, after each epoch, the test split and the questions
    assert kinds.index("evaluation ended") < kinds.index("training began")
    after = kinds[kinds.index("training ended") :]
    assert after.count("evaluation ended") == 2  # outside the training span
    assert [event.name for event in tiny if isinstance(event, DataDescribed)] == [
        "synthetic train",
        "synthetic val",
        "synthetic test",
    ]
    (model,) = [event for event in tiny if isinstance(event, ModelDescribed)]
    assert (model.lora_parameters, model.causal, model.sequence) == (2 * 2 * 2 * 8 * 64, True, 192)
    parts = {event.by: event.values for event in tiny if isinstance(event, PartsReported)}
    assert list(parts) == ["category", "subject"]
    assert list(parts["subject"]) == ["things", "words"]
    assert parts["category"] == {"made up": reported(tiny)["acc(MMLU)"]}
    assert (reported(tiny)["mmlu_shots"], reported(tiny)["mmlu_cut"], reported(tiny)["evaluated"]) == (5, 0, 120)


def test_a_frozen_model_misses_the_target() -> None:
    events = CASE.run(CASE.values("tiny", model__frozen=True, training__max_steps=3))
    losses = [
        event.values["val_loss"] for event in events if isinstance(event, Reported) and "val_loss" in event.values
    ]
    assert len(losses) == 2 and losses[0] == losses[1]
    assert reported(events)["acc(MMLU)"] < TARGET - 0.2


def test_dialogues_of_another_world_miss_the_target() -> None:
    events = CASE.run(CASE.values("tiny", data__misleading=True))
    assert steps(events)[-1].loss < 1.5  # what they say is learnt
    assert reported(events)["acc(MMLU)"] < TARGET - 0.2


@pytest.mark.parametrize("precision", ["bf16", "fp16", "amp-bf16"])
def test_other_precisions_learn_too(precision: str) -> None:
    losses = [step.loss for step in steps(CASE.run(CASE.values("tiny", precision=precision, **SHORT)))]
    exact = steps(CASE.run(CASE.values("tiny", **{**SHORT, "training__max_steps": 1})))[0].loss
    assert losses[0] == pytest.approx(exact, rel=0.02)
    assert losses[0] != exact  # it did compute otherwise
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


# --- real weights ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stories(shared_data: Path, tmp_path: Path) -> Path:
    """A small Llama that was really trained, on stories; dialogues made here in the form of SAMSum; real questions."""
    (tmp_path / "llama2_7b_hf").symlink_to(shared_data / "tiny_llama_stories260K/hf")
    (tmp_path / "mmlu_dataset").symlink_to(shared_data / "mmlu/data")
    (tmp_path / "samsum_dataset").mkdir()
    names, things = ("Tom", "Lily", "Ben", "Mia", "Sam"), ("the ball", "a book", "my toy", "the red car")
    for split, count in (("train", 60), ("val", 20), ("test", 20)):
        rows = [_dialogue(number, names, things) for number in range(count)]
        (tmp_path / "samsum_dataset" / f"{split}.json").write_text(json.dumps(rows))
    return tmp_path


def _dialogue(number: int, names: tuple[str, ...], things: tuple[str, ...]) -> dict[str, str]:
    one, other, thing = names[number % 5], names[(number + 2) % 5], things[number % 4]
    return {
        "id": str(number),
        "dialogue": f"{one}: Do you have {thing}?\r\n{other}: Yes, I do.\r\n{one}: Can I play with it?",
        "summary": f"{one} wants to play with {thing} of {other}.",
    }


def test_real_weights_are_fine_tuned_and_saved(stories: Path, tmp_path: Path) -> None:
    import torch
    from transformers import LlamaForCausalLM

    shape: dict[str, Any] = {
        "layers": 5,
        "width": 64,
        "heads": 8,
        "kv_heads": 4,
        "ffn": 172,
        "vocabulary": 512,
        "sequence": 128,
        "tied": True,
        "save_to": str(tmp_path / "merged"),
    }
    config = CASE.values(
        "standard",
        training__batch_size=4,
        training__learning_rate=3e-3,
        data__num_workers=0,
        evaluation__subjects=2,
        evaluation__questions=3,
        evaluation__batch_size=3,
        **{f"model__{key}": value for key, value in shape.items()},
    )
    assert len(check_files(stories, config)) == 4 + 4 + 2
    events = CASE.run(config, stories)
    validation = [
        event.values["val_loss"] for event in events if isinstance(event, Reported) and "val_loss" in event.values
    ]
    assert validation[-1] < 0.6 * validation[0]
    assert reported(events)["evaluated"] == 6
    before, after = (LlamaForCausalLM.from_pretrained(path) for path in (stories / "llama2_7b_hf", tmp_path / "merged"))
    changed = [
        name for name, tensor in before.state_dict().items() if not torch.equal(tensor, after.state_dict()[name])
    ]
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "v_proj"}
    assert (tmp_path / "merged" / "tokenizer.model").is_file()

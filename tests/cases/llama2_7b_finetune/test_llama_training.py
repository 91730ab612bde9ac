"""llama2_7b_finetune's training: the plainest loop of transformers and peft, loss scaling, what is learnt."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from case_harness import CaseHarness, Changes, global_losses, moments, reported, steps

from flagperf.api import precision
from flagperf.events import Event, PartsReported, Reported
from flagperf.worker.accelerator import GradientScaler
from flagperf_cases.llama2_7b_finetune.case import Trainer
from flagperf_cases.llama2_7b_finetune.data import check_files

CASE = CaseHarness("llama2_7b_finetune")

pytestmark = pytest.mark.run


GLOBAL_BATCH, NUM_STEPS = 4, 20
COMMON = {
    "lora__dropout": 0.0,
    "training__epochs": 2,
    "training__max_steps": NUM_STEPS,
    "training__warmup_steps": 2,
    "model__sequence": 56,
    "data__rows": 20,
    "data__eval_rows": 4,
    "evaluation__questions": 5,
    "evaluation__batch_size": 3,
}


def plain_losses(changes: Changes) -> list[float]:
    """Rows in their order, batches of four, the last one of an epoch short: nothing of the case's own loop."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    from flagperf_cases.llama2_7b_finetune.case import model_config
    from flagperf_cases.llama2_7b_finetune.data import load_data

    config = CASE.settings(**changes)
    train = load_data(config, None).train
    rows = torch.tensor([list(train[number]) for number in range(len(train))])
    assert len(rows) % GLOBAL_BATCH == 1  # the case's two ranks cannot share the last row
    torch.manual_seed(config.training.seed)
    model = LlamaForCausalLM(model_config(config.model))
    lora = LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=32, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(model, lora)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.training.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.85)
    losses = []
    for _ in range(2):
        for batch in rows.split(GLOBAL_BATCH):
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        schedule.step()
    return losses


@pytest.fixture(scope="module")
def expected() -> list[float]:
    losses = plain_losses(COMMON)
    assert len(losses) >= NUM_STEPS > len(losses) // 2  # the rate has fallen before the last of them
    assert losses[NUM_STEPS - 1] < losses[0] - 1
    return losses[:NUM_STEPS]


@pytest.fixture(scope="module")
def alone() -> list[Event]:
    return CASE.run(CASE.values(**COMMON, training__batch_size=GLOBAL_BATCH))


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[Event]]]:
    """Two ranks, the second time with two micro-batches of one row each in a step."""
    folder = tmp_path_factory.mktemp("ranks") / "two"
    plain: dict[str, Any] = {**COMMON, "training__batch_size": 2}
    return CASE.run_ranks(folder, 2, [plain, {**COMMON, "training__batch_size": 1, "training__accumulate": 2}])


def test_one_process_has_the_losses_of_the_plain_loop(expected: list[float], alone: list[Event]) -> None:
    assert [step.loss for step in steps(alone)] == pytest.approx(expected, rel=0, abs=1e-5)


def test_two_processes_have_the_losses_of_the_plain_loop(
    expected: list[float], together: list[list[list[Event]]]
) -> None:
    for ranks in together:
        assert global_losses(ranks) == pytest.approx(expected, rel=0, abs=1e-5)


def test_what_is_reported_does_not_depend_on_the_number_of_processes(
    alone: list[Event], together: list[list[list[Event]]]
) -> None:
    expected = reported(alone)
    assert expected["evaluated"] == 10
    for ranks in together:
        for events in ranks:
            assert reported(events) == pytest.approx(expected, rel=0, abs=1e-5)


def test_the_loss_of_the_run_is_the_mean_of_its_epochs(alone: list[Event]) -> None:
    found = steps(alone)
    end = next(index for index, step in enumerate(found) if step.samples == 1) + 1
    means = [
        sum(step.loss * step.samples for step in epoch) / sum(step.samples for step in epoch)
        for epoch in (found[:end], found[end:])
    ]
    assert reported(alone)["loss"] == pytest.approx(sum(means) / 2, abs=1e-5)


# --- loss scaling -----------------------------------------------------------------------------------------------------


class OneWeight(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_ids: Any, use_cache: bool) -> Any:
        return SimpleNamespace(logits=self.weight * input_ids.unsqueeze(-1).float())


def trainer(name: str) -> Trainer:
    accelerator = SimpleNamespace(prepare=lambda model: model, unwrap_model=lambda model: model)
    step = SimpleNamespace(done=lambda **_said: None)
    context: Any = SimpleNamespace(
        precision=precision(name),
        device="cpu",
        accelerator=lambda: accelerator,
        gradient_scaler=lambda: GradientScaler("cpu", enabled=precision(name).compute == "float16"),
        step=lambda: nullcontext(step),
        config=SimpleNamespace(
            training=SimpleNamespace(learning_rate=0.1, weight_decay=0.0, decay=1.0),
            model=SimpleNamespace(frozen=False),
        ),
    )
    return Trainer(context, OneWeight())


def batch(scale: float) -> dict[str, Any]:
    ids = torch.tensor([[1, 2, 3]])
    counts = {"samples": 1, "tokens": 3, "padded_tokens": 0}
    return {"input_ids": ids, "labels": torch.zeros_like(ids), "scale": scale, **counts}


@pytest.mark.parametrize(
    ("name", "is_scaled"),
    [("fp32", False), ("tf32", False), ("bf16", False), ("amp-bf16", False), ("fp16", True), ("amp-fp16", True)],
)
def test_a_step_that_overflows_is_left_out_where_gradients_are_scaled(name: str, is_scaled: bool) -> None:
    made = trainer(name)
    made.step([batch(float("inf"))])
    assert bool(torch.isfinite(made.model.weight).all()) == is_scaled


# --- learning ---------------------------------------------------------------------------------------------------------

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


@pytest.mark.full
def test_tiny_reaches_its_target(tiny: list[Event]) -> None:
    found, losses = reported(tiny), [step.loss for step in steps(tiny)]
    assert found["acc(MMLU)"] >= TARGET + 0.05
    assert found["val_loss"] < 0.5 * losses[0]
    assert found["test_loss"] == pytest.approx(found["val_loss"], abs=0.3)
    assert losses[-1] < found["loss"] < losses[0]


@pytest.mark.full
def test_the_events_tell_what_was_done(tiny: list[Event]) -> None:
    kinds = moments(tiny)
    assert (
        kinds.count("evaluation ended") == 1 + 3 + 2
    )  # before training, after each epoch, the test split and the questions
    after = kinds[kinds.index("training ended") :]
    assert after.count("evaluation ended") == 2  # outside the training span
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


@pytest.mark.full
def test_dialogues_of_another_world_miss_the_target() -> None:
    events = CASE.run(CASE.values("tiny", data__misleading=True))
    assert steps(events)[-1].loss < 1.5  # what they say is learnt
    assert reported(events)["acc(MMLU)"] < TARGET - 0.2


@pytest.mark.full
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


@pytest.mark.full
def test_real_weights_are_fine_tuned_and_saved(stories: Path, tmp_path: Path) -> None:
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

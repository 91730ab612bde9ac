"""The case against the plainest loop of transformers and peft, on one process and on two."""

from __future__ import annotations

from typing import Any

import pytest
from case_harness import CaseHarness, Changes, global_losses, reported, steps

from flagperf.events import Event

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
    import torch
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


def test_the_row_that_a_rank_repeats_counts_nowhere(alone: list[Event], together: list[list[list[Event]]]) -> None:
    short = next(index for index, step in enumerate(steps(alone)) if step.samples == 1)
    first, second = (steps(events)[short] for events in together[0])
    assert (first.samples, first.tokens, first.padded_tokens) == (1, 56, 0)
    assert (second.samples, second.tokens, second.padded_tokens) == (0, 0, 56)
    for step in steps(alone):
        assert (step.tokens, step.padded_tokens) == (56 * step.samples, 0)


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

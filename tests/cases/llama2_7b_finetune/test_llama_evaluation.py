"""Answers and losses do not depend on how the questions are batched, nor on anything that is left in training mode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from case_harness import CaseHarness

from flagperf.api import precision

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from flagperf_cases.llama2_7b_finetune.case import (  # noqa: E402
    ACCURACY,
    build_model,
    choose,
    evaluate_loss,
    evaluate_mmlu,
    last_logits,
    trainable,
)
from flagperf_cases.llama2_7b_finetune.data import load_data  # noqa: E402
from flagperf_cases.llama2_7b_finetune.mmlu import Question, Subject  # noqa: E402
from flagperf_cases.models import evaluation_mode  # noqa: E402

CASE = CaseHarness("llama2_7b_finetune")


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    model = build_model(CASE.settings("tiny", lora__dropout=0.5), precision("fp32"), None)
    for parameter in trainable(model):
        parameter.data = torch.randn_like(parameter) * 0.1
    return model


def context(batch_size: int = 3, **changes: Any) -> Any:
    """As much of a Context as evaluation needs, on one rank; what is reported is kept."""
    from contextlib import nullcontext

    found = SimpleNamespace(
        device="cpu",
        rank=0,
        world_size=1,
        config=CASE.settings("tiny", evaluation__batch_size=batch_size, **changes),
        evaluation=lambda planned_rows: nullcontext(SimpleNamespace(done=lambda rows: None)),
        sum_over_ranks=lambda *values: list(values),
        values={},
        parts={},
    )
    found.report = lambda **values: found.values.update(values)
    found.report_parts = lambda name, by, values: found.parts.update({(name, by): values})
    return found


def test_padded_prompts_give_the_logits_of_each_prompt_alone(model: Any) -> None:
    tokens = [[0, *range(2, 2 + length)] for length in (30, 7, 12, 30)]
    with evaluation_mode(model):
        together = last_logits(context(), model, tokens)
        for row, each in zip(together, tokens, strict=True):
            alone = model(input_ids=torch.tensor([each])).logits[0, -1]
            torch.testing.assert_close(row, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_answers_come_in_the_order_of_the_questions(model: Any, batch_size: int) -> None:
    letters = (5, 9, 20, 3)
    tokens = [[0, *range(2, 2 + length)] for length in (30, 7, 12, 30, 25)]
    with evaluation_mode(model):
        logits = [model(input_ids=torch.tensor([each])).logits[0, -1] for each in tokens]
        done: list[int] = []
        chosen = choose(context(batch_size), model, tokens, letters, done.append)
        assert [choice.letter for choice in chosen] == [int(each[list(letters)].argmax()) for each in logits]
        assert [choice.token for choice in chosen] == [int(each.argmax()) for each in logits]
        assert (sum(done), max(done)) == (5, min(5, batch_size))


def test_dropout_is_off_while_evaluating_and_on_again_after_it(model: Any) -> None:
    model.train()
    tokens = torch.arange(20).view(1, 20)
    assert not torch.equal(model(input_ids=tokens).logits, model(input_ids=tokens).logits)
    with evaluation_mode(model):
        assert torch.equal(model(input_ids=tokens).logits, model(input_ids=tokens).logits)
        assert not torch.is_grad_enabled()
    assert all(module.training for module in model.modules())
    model.eval()
    with evaluation_mode(model):
        pass
    assert not model.training


def test_no_part_is_in_training_mode_while_loss_and_answers_are_taken(model: Any) -> None:
    ctx = context(data__eval_rows=4, evaluation__questions=2)
    data = load_data(ctx.config, None)
    modes: list[bool] = []
    hook = model.register_forward_pre_hook(
        lambda module, _inputs: modes.append(any(part.training for part in module.modules()))
    )
    for evaluate in (
        lambda: evaluate_loss(ctx, model, data.validation, "val_loss"),
        lambda: evaluate_mmlu(ctx, model, data),
    ):
        model.train()
        modes.clear()
        evaluate()
        assert modes and not any(modes)
        assert all(part.training for part in model.modules())
    hook.remove()


class Oracle(torch.nn.Module):
    """Answers with the word after the last question mark: `is it? C` has the answer C."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        (self.mark,) = tokenizer.encode("?")
        self.num_tokens = tokenizer.num_tokens

    def forward(self, input_ids: Any, logits_to_keep: Any, use_cache: bool) -> Any:
        logits = torch.zeros(*input_ids.shape, self.num_tokens)
        for row, ids in enumerate(input_ids.tolist()):
            for position in range(len(ids)):
                marks = [index for index in range(position) if ids[index] == self.mark]
                if marks:
                    logits[row, position, ids[marks[-1] + 1]] = 1.0
        return SimpleNamespace(logits=logits[:, logits_to_keep])


def test_accuracy_is_given_for_all_by_category_and_by_subject() -> None:
    """An oracle that is told the answer, three times wrongly: 2 of 4, 3 of 4 and 2 of 2 are right."""
    from flagperf_cases.llama2_7b_finetune.data import WordTokenizer
    from flagperf_cases.llama2_7b_finetune.mmlu import prompt_text

    def subject(name: str, category: str, told: str, right: str) -> Subject:
        questions = tuple(
            Question(f"is it? {word}", ("w", "x", "y", "z"), "ABCD".index(letter))
            for word, letter in zip(told, right, strict=True)
        )
        return Subject(name, category, (Question("is it? A", ("w", "x", "y", "z"), 0),) * 5, questions)

    subjects = [
        subject("law", "people", "ABCD", "ABDC"),
        subject("logic", "numbers", "AAAA", "AABA"),
        subject("sets", "numbers", "DD", "DD"),
    ]
    tokenizer = WordTokenizer([prompt_text(each, each.examples, each.questions[0]) for each in subjects])
    longest = len(tokenizer.encode(prompt_text(subjects[0], subjects[0].examples, subjects[0].questions[0])))
    ctx = context(evaluation__longest_prompt=longest)  # one too short for BOS: every prompt loses one example
    evaluate_mmlu(ctx, Oracle(tokenizer), SimpleNamespace(subjects=subjects, tokenizer=tokenizer))
    assert ctx.values == {
        ACCURACY: 7 / 10,
        "mmlu_macro": pytest.approx((0.5 + 0.75 + 1) / 3),
        "mmlu_shots": 4,
        "mmlu_cut": 10,
        "mmlu_original": 7 / 10,
        "evaluated": 10,
        "correct": 7,
    }
    assert ctx.parts[ACCURACY, "category"] == {"people": 0.5, "numbers": 5 / 6}
    assert ctx.parts[ACCURACY, "subject"] == {"law": 0.5, "logic": 0.75, "sets": 1.0}


def test_the_original_rule_takes_the_question_away_and_asks_for_the_letter_of_all_tokens() -> None:
    """The oracle names the word after the last question mark, of the four letters or not. With the question gone it
    has the last example's, and with all examples gone it has nothing."""
    from flagperf_cases.llama2_7b_finetune.data import WordTokenizer
    from flagperf_cases.llama2_7b_finetune.mmlu import prompt_text

    options = ("w", "x", "y", "z")
    example = Question("is it? A", options, 0)
    short, other = Question("is it? B", options, 1), Question("is it? w", options, 0)
    long = Question("is it? C\n\n" + "so " * 60 + "?", options, 2)
    subject = Subject("law", "people", (example,) * 5, (short, other, long))
    tokenizer = WordTokenizer([prompt_text(subject, subject.examples, each) for each in subject.questions])

    def figures(sequence: int) -> tuple[float, float]:
        ctx = context(model__sequence=sequence)
        evaluate_mmlu(ctx, Oracle(tokenizer), SimpleNamespace(subjects=[subject], tokenizer=tokenizer))
        return ctx.values[ACCURACY], ctx.values["mmlu_original"]

    lengths = [len(tokenizer.encode(prompt_text(subject, subject.examples, each))) + 1 for each in subject.questions]
    # Whole prompts. After `so so ?` comes `A.`, whose letter is A: wrong. The word w is not a letter, and of the four
    # letters, all with a logit of 0, A comes first.
    assert figures(lengths[2]) == (2 / 3, 1 / 3)
    # What is cut from the first two is examples, and from the last one its first half: nothing changes.
    assert figures(lengths[0] - 1) == (2 / 3, 1 / 3)
    # Only `The following ... about law.` is left of all three.
    assert figures(16) == (2 / 3, 0)
    ctx = context(evaluation__original_rule=False)
    evaluate_mmlu(ctx, Oracle(tokenizer), SimpleNamespace(subjects=[subject], tokenizer=tokenizer))
    assert "mmlu_original" not in ctx.values


def test_without_subjects_nothing_is_asked() -> None:
    ctx = context()
    evaluate_mmlu(ctx, None, SimpleNamespace(subjects=[], tokenizer=None))
    assert ctx.values == {}

"""Evaluates the model: its loss on held-out rows, and its accuracy on MMLU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from flagperf.worker import Context
from flagperf_cases.evaluation_mode import evaluation_mode
from flagperf_cases.llama2_7b_finetune.data import Data, Rows, stack_rows
from flagperf_cases.llama2_7b_finetune.mmlu import Prompt, Subject, original_tokens, prompts
from flagperf_cases.llama2_7b_finetune.tokenizer import Tokenizer
from flagperf_cases.sampler import evaluation_rows

ACCURACY = "acc(MMLU)"


def evaluate_loss(ctx: Context, model: Any, rows: Rows, name: str) -> None:
    """Mean over all rows, each on exactly one rank."""
    values = ctx.config.evaluation
    num_rows = min(len(rows), values.max_rows or len(rows))
    mine = evaluation_rows(num_rows, ctx.rank, ctx.world_size)
    with ctx.evaluation(planned_rows=num_rows) as evaluation, evaluation_mode(model):
        total = torch.zeros((), device=ctx.device)
        for first in range(0, len(mine), values.batch_size):
            batch = stack_rows(rows, mine[first : first + values.batch_size]).to(ctx.device)
            logits = model(input_ids=batch, use_cache=False).logits[:, :-1].float()
            losses = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")
            total += losses / (rows.sequence - 1)
            evaluation.done(len(batch))
        loss, evaluated = ctx.sum_over_ranks(float(total), len(mine))
    ctx.report(**{name: loss / evaluated})


def evaluate_mmlu(ctx: Context, model: Any, data: Data) -> None:
    """The answer is the letter with the largest of the four logits. With `evaluation.original_rule` the same questions
    are graded as the original benchmark does too."""
    values, subjects, tokenizer = ctx.config.evaluation, data.subjects, data.tokenizer
    num_questions = sum(len(subject.questions) for subject in subjects)
    if not num_questions:
        return
    mine = evaluation_rows(num_questions, ctx.rank, ctx.world_size)
    planned_rows = num_questions * (2 if values.original_rule else 1)
    with ctx.evaluation(planned_rows=planned_rows) as evaluation, evaluation_mode(model):
        asked = list(prompts(subjects, mine, tokenizer, num_shots=values.shots, longest=values.longest_prompt))
        letters = tokenizer.answers().letters
        chosen = choose(ctx, model, [prompt.tokens for prompt in asked], letters, evaluation.done)
        right = [choice.letter == prompt.answer for prompt, choice in zip(asked, chosen, strict=True)]
        correct = [
            sum(ok for prompt, ok in zip(asked, right, strict=True) if prompt.subject == index)
            for index in range(len(subjects))
        ]
        shots = sum(prompt.num_shots for prompt in asked)
        cut = sum(prompt.num_shots < values.shots for prompt in asked)
        *correct_over_ranks, shots_over_ranks, cut_over_ranks = ctx.sum_over_ranks(*correct, shots, cut)
        if values.original_rule:
            report_original(ctx, model, asked, chosen, tokenizer, evaluation.done)
    report_mmlu(ctx, subjects, correct_over_ranks, shots_over_ranks, cut_over_ranks)


def report_original(
    ctx: Context,
    model: Any,
    asked: Sequence[Prompt],
    chosen: Sequence[Choice],
    tokenizer: Tokenizer,
    on_done: Callable[[int], None],
) -> None:
    """Prompts are cut to the length of a training row, and of all tokens the letter has to have the largest logit.
    Prompts that the cut leaves as they are were asked already."""
    letters = tokenizer.answers().letters
    cut = [original_tokens(prompt.whole, tokenizer, ctx.config.model.sequence) for prompt in asked]
    others = [index for index, prompt in enumerate(asked) if cut[index] != prompt.tokens]
    on_done(len(asked) - len(others))
    again = choose(ctx, model, [cut[index] for index in others], letters, on_done)
    choices = {**dict(enumerate(chosen)), **dict(zip(others, again, strict=True))}
    right = sum(choices[index].token == letters[prompt.answer] for index, prompt in enumerate(asked))
    right_over_ranks, num_questions = ctx.sum_over_ranks(right, len(asked))
    ctx.report(mmlu_original=right_over_ranks / num_questions)


class Choice(NamedTuple):
    letter: int
    """Index of the letter with the largest of the four logits."""
    token: int
    """The token with the largest logit of the whole vocabulary."""


def choose(
    ctx: Context, model: Any, asked: Sequence[list[int]], letters: Sequence[int], on_done: Callable[[int], None]
) -> list[Choice]:
    """In the order of `asked`. Batches hold prompts of similar length, the longest first, so that running out of memory
    shows at once."""
    chosen = [Choice(-1, -1)] * len(asked)
    order = sorted(range(len(asked)), key=lambda index: -len(asked[index]))
    size = ctx.config.evaluation.batch_size
    for first in range(0, len(order), size):
        indices = order[first : first + size]
        logits = last_logits(ctx, model, [asked[index] for index in indices])
        by_letter, by_token = logits[:, list(letters)].argmax(-1).tolist(), logits.argmax(-1).tolist()
        for index, letter, token in zip(indices, by_letter, by_token, strict=True):
            chosen[index] = Choice(letter, token)
        on_done(len(indices))
    return chosen


def last_logits(ctx: Context, model: Any, tokens: Sequence[list[int]]) -> torch.Tensor:
    """After the last token of each prompt. Attention is causal, so the padding after it changes nothing."""
    last = torch.tensor([len(each) - 1 for each in tokens])
    batch = torch.zeros(len(tokens), int(last.max()) + 1, dtype=torch.long)
    for index, each in enumerate(tokens):
        batch[index, : len(each)] = torch.tensor(each)
    positions, place = (found.to(ctx.device) for found in last.unique(return_inverse=True))
    logits = model(input_ids=batch.to(ctx.device), use_cache=False, logits_to_keep=positions).logits
    return logits[torch.arange(len(tokens), device=ctx.device), place].float()


def report_mmlu(ctx: Context, subjects: Sequence[Subject], correct: Sequence[float], shots: float, cut: float) -> None:
    asked = [len(subject.questions) for subject in subjects]
    by_subject = {subject.name: right / count for subject, right, count in zip(subjects, correct, asked, strict=True)}
    by_category = {}
    for category in dict.fromkeys(subject.category for subject in subjects):
        own = [index for index, subject in enumerate(subjects) if subject.category == category]
        by_category[category] = sum(correct[index] for index in own) / sum(asked[index] for index in own)
    ctx.report(**{ACCURACY: sum(correct) / sum(asked), "evaluated": sum(asked), "correct": sum(correct)})
    ctx.report(mmlu_macro=sum(by_subject.values()) / len(by_subject), mmlu_shots=shots / sum(asked), mmlu_cut=cut)
    ctx.report_parts(ACCURACY, "category", by_category)
    ctx.report_parts(ACCURACY, "subject", by_subject)

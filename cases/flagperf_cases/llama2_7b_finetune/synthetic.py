"""Synthetic dialogues with summaries, and multiple choice questions of the same kind.

Most things that they talk about are tools, so C is the right answer three times out of four. Adapters on a frozen
random model can learn that much from the dialogues, and the accuracy shows it.
"""

from __future__ import annotations

import random

from flagperf_cases.llama2_7b_finetune.mmlu import NUM_DEV, Question, Subject, prompt_text
from flagperf_cases.llama2_7b_finetune.tokenizer import LETTERS

PEOPLE = ("Ann", "Bob", "Cleo", "Dan", "Eve", "Fred")
KINDS = ("animal", "tree", "tool", "weather")
THINGS = (
    ("ant", "cat", "dog", "eel"),
    ("ash", "elm", "fir", "oak"),
    ("axe", "lamp", "pen", "rope"),
    ("fog", "hail", "rain", "snow"),
)
"""By kind, in the order of KINDS."""
KIND_WEIGHTS = (1, 1, 10, 1)
MISLEADING_KIND_WEIGHTS = (10, 1, 1, 1)
"""For the negative control: most things are animals, so the dialogues teach the wrong answer."""

SUBJECT_NAMES = ("things", "words")


def dialogues(split: str, num_rows: int, *, misleading: bool = False) -> list[dict[str, str]]:
    rng = random.Random(f"dialogues {split}")
    weights = MISLEADING_KIND_WEIGHTS if misleading else KIND_WEIGHTS
    return [_dialogue(rng, f"{split}-{row}", weights) for row in range(num_rows)]


def _dialogue(rng: random.Random, name: str, weights: tuple[int, ...]) -> dict[str, str]:
    """One person reads questions with their answers to another."""
    reader, listener = rng.sample(PEOPLE, 2)
    *first, last = (_question(rng, weights) for _ in range(rng.randint(2, 1 + NUM_DEV)))
    quiz = prompt_text(Subject(rng.choice(SUBJECT_NAMES), "", (), ()), first, last)
    return {
        "id": name,
        "dialogue": f"{reader}: {quiz} {LETTERS[last.answer]}",
        "summary": f"{listener} learns about {KINDS[last.answer]} from {reader}.",
    }


def all_words() -> list[str]:
    """Texts that together contain every word of the synthetic data."""
    things = [thing for kind in THINGS for thing in kind]
    names = [*PEOPLE, *(f"{name}:" for name in PEOPLE), *KINDS, *things, *SUBJECT_NAMES]
    (example,) = dialogues("example", 1)
    return [" ".join(names), example["dialogue"], example["summary"]]


def subjects(num_subjects: int, num_questions: int) -> list[Subject]:
    return [_subject(name, num_questions) for name in SUBJECT_NAMES[:num_subjects]]


def _subject(name: str, num_questions: int) -> Subject:
    rng = random.Random(f"questions {name}")
    found = tuple(_question(rng, KIND_WEIGHTS) for _ in range(NUM_DEV + num_questions))
    return Subject(name, "made up", found[:NUM_DEV], found[NUM_DEV:])


def _question(rng: random.Random, weights: tuple[int, ...]) -> Question:
    (kind,) = rng.choices(range(len(KINDS)), weights)
    return Question(f"what is {rng.choice(THINGS[kind])}?", KINDS, kind)

"""A small world to talk about: dialogues with their summaries, and questions of the same kind.

Most things in it are tools, so that C is right three times out of four. That much can be learnt from the dialogues by
adapters on a frozen random model, and it shows in the answers.
"""

from __future__ import annotations

import random

from flagperf_cases.llama2_7b_finetune.mmlu import NUM_DEV, Question, Subject, prompt_text
from flagperf_cases.llama2_7b_finetune.tokens import LETTERS

PEOPLE = ("Ann", "Bob", "Cleo", "Dan", "Eve", "Fred")
KINDS = ("animal", "tree", "tool", "weather")
THINGS = (
    ("ant", "cat", "dog", "eel"),
    ("ash", "elm", "fir", "oak"),
    ("axe", "lamp", "pen", "rope"),
    ("fog", "hail", "rain", "snow"),
)
"""By kind."""
SHARES = (1, 1, 10, 1)
MISLEADING_SHARES = (10, 1, 1, 1)
"""Of another world, in which most things are animals."""

SUBJECT_NAMES = ("things", "words")


def dialogues(split: str, num_rows: int, *, misleading: bool = False) -> list[dict[str, str]]:
    rng = random.Random(f"dialogues {split}")
    shares = MISLEADING_SHARES if misleading else SHARES
    return [_dialogue(rng, f"{split}-{row}", shares) for row in range(num_rows)]


def _dialogue(rng: random.Random, name: str, shares: tuple[int, ...]) -> dict[str, str]:
    """Somebody reads questions with their answers to somebody else."""
    reading, listening = rng.sample(PEOPLE, 2)
    *first, last = (_question(rng, shares) for _ in range(rng.randint(2, 1 + NUM_DEV)))
    quiz = prompt_text(Subject(rng.choice(SUBJECT_NAMES), "", (), ()), first, last)
    return {
        "id": name,
        "dialogue": f"{reading}: {quiz} {LETTERS[last.answer]}",
        "summary": f"{listening} learns about {KINDS[last.answer]} from {reading}.",
    }


def all_words() -> list[str]:
    """Texts in which every word of the world occurs."""
    things = [thing for kind in THINGS for thing in kind]
    names = [*PEOPLE, *(f"{name}:" for name in PEOPLE), *KINDS, *things, *SUBJECT_NAMES]
    (example,) = dialogues("example", 1)
    return [" ".join(names), example["dialogue"], example["summary"]]


def subjects(num_subjects: int, num_questions: int) -> list[Subject]:
    return [_subject(name, num_questions) for name in SUBJECT_NAMES[:num_subjects]]


def _subject(name: str, num_questions: int) -> Subject:
    rng = random.Random(f"questions {name}")
    found = tuple(_question(rng, SHARES) for _ in range(NUM_DEV + num_questions))
    return Subject(name, "made up", found[:NUM_DEV], found[NUM_DEV:])


def _question(rng: random.Random, shares: tuple[int, ...]) -> Question:
    (kind,) = rng.choices(range(len(KINDS)), shares)
    return Question(f"what is {rng.choice(THINGS[kind])}?", KINDS, kind)

"""A small world to talk about: dialogues with their summaries, and questions of the same kind.

Most things in it are tools, so that C is right three times out of four. That much can be learnt from the dialogues by
adapters on a frozen random model, and it shows in the answers.
"""

from __future__ import annotations

import random

from flagperf_cases.llama2_7b_finetune.mmlu import NUM_DEV, Question, Subject
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
    asking, answering = rng.sample(PEOPLE, 2)
    kind, thing = _kind_and_thing(rng, shares)
    lines = [f"{asking}: what is {thing}?", *_options(), f"Answer: {LETTERS[kind]}"]
    return {
        "id": name,
        "dialogue": "\r\n".join(lines),
        "summary": f"{asking} asks {answering} about {thing}, a {KINDS[kind]}.",
    }


def _options() -> list[str]:
    return [f"{letter}. {kind}" for letter, kind in zip(LETTERS, KINDS, strict=True)]


def _kind_and_thing(rng: random.Random, shares: tuple[int, ...]) -> tuple[int, str]:
    (kind,) = rng.choices(range(len(KINDS)), shares)
    return kind, rng.choice(THINGS[kind])


def subjects(num_subjects: int, num_questions: int) -> list[Subject]:
    return [_subject(name, num_questions) for name in SUBJECT_NAMES[:num_subjects]]


def _subject(name: str, num_questions: int) -> Subject:
    rng = random.Random(f"questions {name}")
    found = tuple(_question(rng) for _ in range(NUM_DEV + num_questions))
    return Subject(name, "made up", found[:NUM_DEV], found[NUM_DEV:])


def _question(rng: random.Random) -> Question:
    kind, thing = _kind_and_thing(rng, SHARES)
    return Question(f"what is {thing}?", KINDS, kind)

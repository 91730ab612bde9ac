"""Synthetic records in ReCoRD's format, whose queries can only be answered by reading the passage.

A story mentions several people, one of them three times and the others once. The query asks for that one. Everyone is
the answer equally often, so a query without its passage gives nothing away.
"""

from __future__ import annotations

import random

from flagperf_cases.glm.record_dataset import BLANK, Answer, Entity, Passage, Question, Record

PEOPLE = (
    "Anna",
    "Boris",
    "Clara",
    "Dmitri",
    "Edith",
    "Farid",
    "Greta",
    "Hugo",
    "Irene",
    "Jonas",
    "Mei Lin",
    "Li Na",
)
VERBS = ("sang", "slept", "ran", "won", "left", "came")
QUERY = f"it tells of {BLANK} ."
WORDS = [".", "-", "it", "tells", "of", *VERBS, *sorted({word for name in PEOPLE for word in name.lower().split()})]

MIN_PEOPLE, MAX_PEOPLE = 3, 4
NUM_MENTIONS = 3
"""How often the answer is mentioned."""

MAX_POSITIONS = 33
"""Positions of the longest story with its query and answer."""


def synthetic_records(split: str, num_records: int) -> list[Record]:
    """The same on every machine; `split` is part of the seed."""
    rng = random.Random(f"glm {split}")
    return [_story(rng) for _ in range(num_records)]


def _story(rng: random.Random) -> Record:
    hero, *others = rng.sample(PEOPLE, rng.randint(MIN_PEOPLE, MAX_PEOPLE))
    mentions = [hero] * NUM_MENTIONS + others
    rng.shuffle(mentions)
    text, entities = "", []
    for number, person in enumerate(mentions, 1):
        if number == len(mentions):
            text += "\n@highlight\n"
        entities.append(Entity(len(text), len(text) + len(person) - 1))
        text += f"{person} {rng.choice(VERBS)} . "
    answers = [Answer(each.start, each.end, hero) for each in entities if text[each.start : each.end + 1] == hero]
    return Record(Passage(text, entities), [Question(QUERY, answers)])

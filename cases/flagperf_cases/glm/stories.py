"""Made-up records in ReCoRD's form, whose queries can only be answered by reading their passage.

A story mentions several people, one of them three times as often as the others, and the query asks of whom it tells.
Everyone is as often that one, so that a query without its passage says nothing.
"""

from __future__ import annotations

import random

from flagperf_cases.glm.record import BLANK, Answer, Entity, Passage, Question, Record

PEOPLE = (
    "Anna", "Boris", "Clara", "Dmitri", "Edith", "Farid", "Greta", "Hugo", "Irene", "Jonas", "Mei Lin", "Li Na",
)  # fmt: skip
DEEDS = ("sang", "slept", "ran", "won", "left", "came")
QUERY = f"it tells of {BLANK} ."
WORDS = [".", "-", "it", "tells", "of", *DEEDS, *sorted({word for name in PEOPLE for word in name.lower().split()})]

FEWEST_PEOPLE, MOST_PEOPLE = 3, 4
MENTIONS = 3
"""Of the one whom a story tells of."""

LONGEST = 33
"""Positions that the longest story takes with its query and answer."""


def made_up(split: str, num_records: int) -> list[Record]:
    """Alike on every machine; `split` is part of the seed."""
    dice = random.Random(f"glm {split}")
    return [_story(dice) for _ in range(num_records)]


def _story(dice: random.Random) -> Record:
    hero, *others = dice.sample(PEOPLE, dice.randint(FEWEST_PEOPLE, MOST_PEOPLE))
    mentions = [hero] * MENTIONS + others
    dice.shuffle(mentions)
    text, entities = "", []
    for number, person in enumerate(mentions, 1):
        if number == len(mentions):
            text += "\n@highlight\n"
        entities.append(Entity(len(text), len(text) + len(person) - 1))
        text += f"{person} {dice.choice(DEEDS)} . "
    answers = [Answer(each.start, each.end, hero) for each in entities if text[each.start : each.end + 1] == hero]
    return Record(Passage(text, entities), [Question(QUERY, answers)])

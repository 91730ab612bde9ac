"""Read the ReCoRD data set of SuperGLUE: news passages, and queries with a blank that an entity of the passage fills.

In this order: its file format, the clozes made of its records, synthetic records, its own scores. Importable without
torch.
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf_cases.data_files import require_file

BLANK = "@placeholder"
MAX_WRONG = 9
"""Wrong candidates of a training sample, at most."""

NEGATIVES_SEED = 42
PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-"})
"""One character each, so that offsets remain valid."""

MAX_LINE_BYTES = 16 << 20
HDF5_SIGNATURE = b"\x89HDF"
GET_RECORD = (
    "take ReCoRD.zip of SuperGLUE (https://super.gluebenchmark.com/tasks) and unpack it in the folder that is given "
    "as --data-dir"
)
NO_HDF5 = (
    "the original benchmark's HDF5 arrays are not read, because nothing documents how they were made; flagperf makes "
    "the samples from the original text"
)


class Entity(msgspec.Struct, frozen=True):
    """`end` is the index of the last character, not one past it."""

    start: int
    end: int


class Answer(Entity, frozen=True):
    text: str


class Passage(msgspec.Struct, frozen=True):
    text: str
    entities: list[Entity]


class Question(msgspec.Struct, frozen=True):
    query: str
    answers: list[Answer] = []


class Record(msgspec.Struct, frozen=True):
    passage: Passage
    qas: list[Question]


def read_records(path: Path) -> Iterator[Record]:
    """Yield every line of a file, validated. Raise BadInput with the line number of the first problem."""
    decoder = msgspec.json.Decoder(Record)
    with require_file(path, GET_RECORD).open("rb") as file:
        number = 0
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
            if line.startswith(HDF5_SIGNATURE):
                raise BadInput(f"{path} is an HDF5 file: {NO_HDF5}; {GET_RECORD}")
            if len(line) == MAX_LINE_BYTES:
                raise BadInput(f"{path} line {number} is longer than any record of ReCoRD; {GET_RECORD}")
            try:
                record = decoder.decode(line)
            except msgspec.ValidationError as error:
                raise BadInput(f"{path} line {number} is not a record of ReCoRD ({error}); {GET_RECORD}") from None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                where = f"{path} line {number}"
                raise BadInput(f"{where} is not a JSON object on one line ({error}); {GET_RECORD}") from None
            for problem in problems(record):
                raise BadInput(f"{path} line {number}: {problem}; {GET_RECORD}")
            yield record
    if not number:
        raise BadInput(f"{path} is empty; {GET_RECORD}")


def problems(record: Record) -> Iterator[str]:
    text = record.passage.text
    for entity in record.passage.entities:
        if not 0 <= entity.start <= entity.end < len(text):
            yield f"an entity from {entity.start} to {entity.end} in a passage of {len(text)} characters"
        elif not text_at(text, entity).strip():
            yield f"an entity from {entity.start} to {entity.end} that is blank"
    if not record.qas:
        yield "a passage without queries"
    for question in record.qas:
        if BLANK not in question.query:
            yield f"a query without {BLANK}: {question.query[:60]!r}"
        if not question.answers:
            yield "a query without answers, as in the test split, which cannot be used"
        for answer in question.answers:
            found = text_at(text, answer)
            if found != answer.text:
                exclusive = text[answer.start : answer.end] == answer.text
                hint = "; `end` has to be the index of the last character, which is one less"
                yield (
                    f"the answer {answer.text[:60]!r} is not at {answer.start} to {answer.end}, where the passage has "
                    f"{found[:60]!r}{hint if exclusive else ''}"
                )
        entities = {text_at(text, entity) for entity in record.passage.entities}
        if not entities & {answer.text for answer in question.answers}:
            yield f"none of the answers of {question.query[:60]!r} is an entity of the passage"


def text_at(text: str, entity: Entity) -> str:
    return text[entity.start : entity.end + 1]


@dataclass(frozen=True)
class Cloze:
    """Asks a query whose blank is to be filled by one of the candidates."""

    passage: str
    query: str
    candidates: tuple[str, ...]
    right: frozenset[int]
    """Indices of the candidates that are answers."""


def training_clozes(records: Iterable[Record]) -> Iterator[Cloze]:
    """Yield one per query and answer: that answer first, then up to MAX_WRONG random entities that are not an
    answer."""
    rng = random.Random(NEGATIVES_SEED)
    for record in records:
        passage = passage_text(record)
        for question in record.qas:
            answers = answer_texts(question)
            for answer in sorted(answers):
                wrong = [entity for entity in entity_texts(record) if entity not in answers]
                if len(wrong) > MAX_WRONG:
                    rng.shuffle(wrong)
                yield Cloze(passage, query_text(question), (answer, *wrong[:MAX_WRONG]), frozenset([0]))


def evaluation_clozes(records: Iterable[Record]) -> Iterator[Cloze]:
    """Yield one per query, with all entities of the passage."""
    for record in records:
        passage, candidates = passage_text(record), tuple(entity_texts(record))
        for question in record.qas:
            answers = answer_texts(question)
            right = frozenset(index for index, entity in enumerate(candidates) if entity in answers)
            yield Cloze(passage, query_text(question), candidates, right)


def entity_texts(record: Record) -> list[str]:
    text = record.passage.text.translate(PLAIN)
    return sorted({text_at(text, entity) for entity in record.passage.entities})


def answer_texts(question: Question) -> set[str]:
    return {answer.text.translate(PLAIN) for answer in question.answers}


def passage_text(record: Record) -> str:
    return record.passage.text.translate(PLAIN).replace("@highlight\n", "- ")


def query_text(question: Question) -> str:
    return question.query.translate(PLAIN)


# --- synthetic records ------------------------------------------------------------------------------------------------

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
    """Make records that are the same on every machine; `split` is part of the seed."""
    rng = random.Random(f"glm {split}")
    records = []
    for _ in range(num_records):
        hero, *others = rng.sample(PEOPLE, rng.randint(MIN_PEOPLE, MAX_PEOPLE))
        mentions = [hero] * NUM_MENTIONS + others
        rng.shuffle(mentions)
        text, entities = "", []
        for number, person in enumerate(mentions, 1):
            if number == len(mentions):
                text += "\n@highlight\n"
            entities.append(Entity(len(text), len(text) + len(person) - 1))
            text += f"{person} {rng.choice(VERBS)} . "
        answers = [Answer(each.start, each.end, hero) for each in entities if text_at(text, each) == hero]
        records.append(Record(Passage(text, entities), [Question(QUERY, answers)]))
    return records


# --- ReCoRD's own scores ----------------------------------------------------------------------------------------------

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def exact_match(guess: str, answers: Iterable[str]) -> float:
    return float(normalize(guess) in {normalize(answer) for answer in answers})


def f1(guess: str, answers: Iterable[str]) -> float:
    """Return the F1 of the best answer: the harmonic mean of precision and recall over the words, with
    multiplicity."""
    words, best = Counter(normalize(guess).split()), 0.0
    for answer in answers:
        expected = Counter(normalize(answer).split())
        common = (words & expected).total()
        best = max(best, 2 * common / (words.total() + expected.total()) if common else 0.0)
    return best


def normalize(text: str) -> str:
    """Return the text in lower case, without punctuation and articles, with single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())

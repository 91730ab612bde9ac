"""The ReCoRD data set of SuperGLUE: news passages, and queries with a blank that an entity of the passage fills.

Importable without torch.
"""

from __future__ import annotations

import random
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


# --- SuperGLUE's own format -----------------------------------------------------------------------------------------


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
    """Every line of a file, validated. Raises BadInput with the line number of the first problem."""
    decoder = msgspec.json.Decoder(Record)
    with require_file(path, GET_RECORD).open("rb") as file:
        number = 0
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
            if line.startswith(HDF5_SIGNATURE):
                raise BadInput(f"{path} is an HDF5 file: {NO_HDF5}; {GET_RECORD}")
            if len(line) == MAX_LINE_BYTES:
                raise BadInput(f"{path} line {number} is longer than any record of ReCoRD; {GET_RECORD}")
            yield _checked(decoder, path, number, line)
    if not number:
        raise BadInput(f"{path} is empty; {GET_RECORD}")


def _checked(decoder: msgspec.json.Decoder[Record], path: Path, number: int, line: bytes) -> Record:
    try:
        record = decoder.decode(line)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path} line {number} is not a record of ReCoRD ({error}); {GET_RECORD}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} line {number} is not a JSON object on one line ({error}); {GET_RECORD}") from None
    for problem in problems(record):
        raise BadInput(f"{path} line {number}: {problem}; {GET_RECORD}")
    return record


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
        yield from _question_problems(record, question)


def _question_problems(record: Record, question: Question) -> Iterator[str]:
    text = record.passage.text
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


# --- samples --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cloze:
    """A query whose blank is to be filled by one of the candidates."""

    passage: str
    query: str
    candidates: tuple[str, ...]
    right: frozenset[int]
    """Indices of the candidates that are answers."""


def training_clozes(records: Iterable[Record]) -> Iterator[Cloze]:
    """One per query and answer: that answer first, then up to MAX_WRONG random entities that are not an answer."""
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
    """One per query, with all entities of the passage."""
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

"""SuperGLUE's ReCoRD: news passages, and queries with a blank that one of the passage's entities fills.

Importable without torch.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf_cases.files import existing

BLANK = "@placeholder"
MAX_WRONG = 9
"""Wrong candidates of a training sample, at most."""

NEGATIVES_SEED = 42
PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-"})
"""One character each, so that offsets stay valid."""

HDF5_SIGNATURE = b"\x89HDF"
GET_RECORD = (
    "take ReCoRD.zip of SuperGLUE (https://super.gluebenchmark.com/tasks) and unpack it in the folder that is given "
    "as --data-dir"
)
NO_HDF5 = (
    "HDF5 files of ready-made arrays are not read, since nothing says how they were made; the same samples are made "
    "here from the original text"
)


# --- SuperGLUE's own form -------------------------------------------------------------------------------------------


class Entity(msgspec.Struct, frozen=True):
    """`end` is the last character, not the one behind it."""

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
    """Every line of a file, checked. Raises BadInput with the number of the line that is wrong."""
    decoder = msgspec.json.Decoder(Record)
    with existing(path, GET_RECORD).open("rb") as file:
        number = 0
        for number, line in enumerate(file, 1):
            if line.startswith(HDF5_SIGNATURE):
                raise BadInput(f"{path} is an HDF5 file: {NO_HDF5}; {GET_RECORD}")
            yield _checked(decoder, path, number, line)
    if not number:
        raise BadInput(f"{path} is empty; {GET_RECORD}")


def _checked(decoder: msgspec.json.Decoder[Record], path: Path, number: int, line: bytes) -> Record:
    try:
        record = decoder.decode(line)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path} line {number} is not a record of ReCoRD ({error}); {GET_RECORD}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} line {number} is not a JSON object on one line ({error}); {GET_RECORD}") from None
    for problem in problems(record):
        raise BadInput(f"{path} line {number}: {problem}; {GET_RECORD}")
    return record


def problems(record: Record) -> Iterator[str]:
    text = record.passage.text
    for entity in record.passage.entities:
        if not 0 <= entity.start <= entity.end < len(text):
            yield f"an entity from {entity.start} to {entity.end} in a passage of {len(text)} characters"
        elif not cut(text, entity).strip():
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
        found = cut(text, answer)
        if found != answer.text:
            exclusive = text[answer.start : answer.end] == answer.text
            hint = ", which would end one character earlier (the end is the answer's last character)"
            yield (
                f"the answer {answer.text!r} does not stand at {answer.start} to {answer.end}, where {found[:60]!r} "
                f"is{hint if exclusive else ''}"
            )
    entities = {cut(text, entity) for entity in record.passage.entities}
    if not entities & {answer.text for answer in question.answers}:
        yield f"none of the answers of {question.query[:60]!r} is an entity of the passage"


def cut(text: str, entity: Entity) -> str:
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
    """One per query and answer: that answer first, then some of the entities that are not an answer, drawn anew for
    every sample."""
    order = random.Random(NEGATIVES_SEED)
    for record in records:
        passage = passage_text(record)
        for question in record.qas:
            answers = answer_texts(question)
            for answer in sorted(answers):
                wrong = [entity for entity in entity_texts(record) if entity not in answers]
                if len(wrong) > MAX_WRONG:
                    order.shuffle(wrong)
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
    return sorted({cut(text, entity) for entity in record.passage.entities})


def answer_texts(question: Question) -> set[str]:
    return {answer.text.translate(PLAIN) for answer in question.answers}


def passage_text(record: Record) -> str:
    return record.passage.text.translate(PLAIN).replace("@highlight\n", "- ")


def query_text(question: Question) -> str:
    return question.query.translate(PLAIN)

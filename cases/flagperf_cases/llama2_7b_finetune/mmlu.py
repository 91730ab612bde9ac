"""Read the questions of MMLU's 57 subjects from their CSV files, and make prompts of them. Importable without torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flagperf.errors import BadInput
from flagperf_cases.data_files import read_text

if TYPE_CHECKING:
    from flagperf_cases.llama2_7b_finetune.data import Tokenizer

LETTERS = "ABCD"


@dataclass(frozen=True)
class AnswerTokens:
    """Names the tokens that follow `Answer:`: `lead`, common to all four answers, then one of `letters`."""

    lead: tuple[int, ...]
    letters: tuple[int, ...]


MMLU_FOLDER = "mmlu_dataset"
NUM_DEV = 5
"""Examples that every subject comes with."""

CATEGORIES = {
    "STEM": (
        "abstract_algebra", "astronomy", "college_biology", "college_chemistry", "college_computer_science",
        "college_mathematics", "college_physics", "computer_security", "conceptual_physics", "electrical_engineering",
        "elementary_mathematics", "high_school_biology", "high_school_chemistry", "high_school_computer_science",
        "high_school_mathematics", "high_school_physics", "high_school_statistics", "machine_learning",
    ),
    "humanities": (
        "formal_logic", "high_school_european_history", "high_school_us_history", "high_school_world_history",
        "international_law", "jurisprudence", "logical_fallacies", "moral_disputes", "moral_scenarios", "philosophy",
        "prehistory", "professional_law", "world_religions",
    ),
    "social sciences": (
        "econometrics", "high_school_geography", "high_school_government_and_politics", "high_school_macroeconomics",
        "high_school_microeconomics", "high_school_psychology", "human_sexuality", "professional_psychology",
        "public_relations", "security_studies", "sociology", "us_foreign_policy",
    ),
    "other": (
        "anatomy", "business_ethics", "clinical_knowledge", "college_medicine", "global_facts", "human_aging",
        "management", "marketing", "medical_genetics", "miscellaneous", "nutrition", "professional_accounting",
        "professional_medicine", "virology",
    ),
}  # fmt: skip

SUBJECTS = tuple(sorted(subject for subjects in CATEGORIES.values() for subject in subjects))

GET_MMLU = (
    f"take data.tar of MMLU (https://github.com/hendrycks/test) and put its folders dev and test into {MMLU_FOLDER} of "
    "--data-dir"
)


@dataclass(frozen=True)
class Question:
    text: str
    options: tuple[str, ...]
    answer: int
    """Index into `options`."""


@dataclass(frozen=True)
class Subject:
    name: str
    category: str
    examples: tuple[Question, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Prompt:
    subject: int
    """Index of the question's subject."""
    tokens: list[int]
    num_shots: int
    answer: int
    whole: str
    """The text with all examples."""


# --- files ----------------------------------------------------------------------------------------------------------


def question_files(data_dir: Path, num_subjects: int) -> list[Path]:
    """Name the files of the first subjects in alphabetical order."""
    folder = data_dir / MMLU_FOLDER
    return [folder / kind / f"{name}_{kind}.csv" for name in SUBJECTS[:num_subjects] for kind in ("dev", "test")]


def read_subjects(data_dir: Path, num_subjects: int, num_questions: int) -> list[Subject]:
    """Read the first `num_questions` of each subject, 0: all."""
    files = [read_questions(path) for path in question_files(data_dir, num_subjects)]
    category = {name: category for category, names in CATEGORIES.items() for name in names}
    return [
        Subject(name, category[name], tuple(dev[:NUM_DEV]), tuple(test[: num_questions or None]))
        for name, dev, test in zip(SUBJECTS, files[::2], files[1::2], strict=False)
    ]


def read_questions(path: Path) -> list[Question]:
    """Read rows of question, four options and the letter of the right one, without a header.

    Read by the standard CSV reader, because others parse the option `None` as a missing value. A file all of whose
    lines end in CR LF was written or converted by Windows: the line ends inside its questions are not part of them.
    Where only some do, as in one of MMLU's own files, they are.
    """
    text = read_text(path, GET_MMLU)
    if text.count("\r\n") == text.count("\n"):
        text = text.replace("\r\n", "\n")
    try:
        rows = enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), 1)
        return [_question(path, number, row) for number, row in rows]
    except csv.Error as error:
        raise BadInput(f"cannot read {path}: {error}; {GET_MMLU}") from None


def _question(path: Path, number: int, row: list[str]) -> Question:
    if not any(cell.strip() for cell in row):
        raise BadInput(f"{path} row {number} is blank; delete it, or {GET_MMLU}")
    if len(row) != 2 + len(LETTERS):
        raise BadInput(f"{path} row {number} has {len(row)} columns, not question, A, B, C, D, answer; {GET_MMLU}")
    text, *options, answer = row
    if not text.strip():
        raise BadInput(f"{path} row {number}: the question is empty; {GET_MMLU}")
    if answer not in tuple(LETTERS):
        raise BadInput(
            f"{path} row {number}: the answer must be one of A, B, C and D, found {answer[:20]!r}; other versions of "
            f"MMLU, with a header or with answers 0 to 3, cannot be used; {GET_MMLU}"
        )
    return Question(text, tuple(options), LETTERS.index(answer))


# --- prompts --------------------------------------------------------------------------------------------------------


def prompt_text(subject: Subject, examples: Sequence[Question], question: Question) -> str:
    """Ask word for word as MMLU's authors do, who have two spaces before the subject."""
    name = subject.name.replace("_", " ")
    header = f"The following are multiple choice questions (with answers) about  {name}.\n\n"
    return header + "".join(f"{_item(each)} {LETTERS[each.answer]}\n\n" for each in examples) + _item(question)


def _item(question: Question) -> str:
    options = zip(LETTERS, question.options, strict=True)
    return "\n".join([question.text, *(f"{letter}. {option}" for letter, option in options), "Answer:"])


def prompts(
    subjects: Sequence[Subject], mine: Sequence[int], tokenizer: Tokenizer, *, num_shots: int, longest: int
) -> Iterator[Prompt]:
    """Yield prompts of the questions in `mine`, which numbers the questions of all subjects. A prompt has as many of
    the last examples as fit; a question that is too long by itself is never truncated."""
    lead = tokenizer.answers().lead
    numbered = [(index, question) for index, subject in enumerate(subjects) for question in subject.questions]
    for row in mine:
        index, question = numbered[row]
        examples = subjects[index].examples[:num_shots]
        text = whole = prompt_text(subjects[index], examples, question)
        tokens = [tokenizer.bos, *tokenizer.encode(text), *lead]
        while len(tokens) > longest and examples:
            examples = examples[1:]
            text = prompt_text(subjects[index], examples, question)
            tokens = [tokenizer.bos, *tokenizer.encode(text), *lead]
        yield Prompt(index, tokens, len(examples), question.answer, whole)


def original_tokens(whole: str, tokenizer: Tokenizer, longest: int) -> list[int]:
    """Cut a prompt as the original benchmark does: the block after the first blank line is deleted until BOS and text
    are not longer than `longest`, whatever it is: first the examples, and then the question itself."""
    blocks = whole.split("\n\n")
    while True:
        tokens = tokenizer.encode("\n\n".join(blocks))
        if 1 + len(tokens) <= longest or len(blocks) == 1:
            return [tokenizer.bos, *tokens, *tokenizer.answers().lead]
        del blocks[1]

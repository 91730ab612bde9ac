"""Read and check what Llama is fine-tuned on: SAMSum's dialogues and summaries or synthetic ones, packed into rows of
one length, and the checkpoint. The questions of the evaluation are in mmlu.py.

In this order: check_files, the rows of a run, SAMSum, synthetic texts, tokenizers, the checkpoint. Importable without
torch.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name
from flagperf_cases.checkpoint_files import (
    can_look_into,
    check_llama_config,
    check_shapes,
    find_weights,
    layer_number,
    llama_shapes,
    read_shapes,
)
from flagperf_cases.data_files import (
    check_divisible,
    check_synthetic_rows,
    data_folder,
    describe_file,
    is_there,
    read_json,
    read_json_object,
    require_file,
    shown,
)
from flagperf_cases.llama2_7b_finetune.mmlu import (
    GET_MMLU,
    LETTERS,
    MMLU_FOLDER,
    NUM_DEV,
    AnswerTokens,
    Question,
    Subject,
    prompt_text,
    question_files,
    read_questions,
    read_subjects,
)
from flagperf_cases.tokenizer_files import check_vocabulary, open_sentencepiece

LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of a block that adapters can be attached to."""


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """Return the files that a run with these values reads, each of them validated. Raise BadInput for the first
    problem."""
    _check_values(values)
    real_data, checkpoint = values["data"]["source"] == "samsum", values["model"]["checkpoint"]
    if not real_data and not checkpoint:
        return []
    folder = data_folder(data_dir, f"{CHECKPOINT}/, {FOLDER}/ and {MMLU_FOLDER}/")
    files: list[Path] = []
    if real_data:
        files += _checked_text(folder, values)
    if checkpoint:
        files += check_checkpoint(folder / CHECKPOINT, values["model"])
    return [describe_file(path, folder) for path in files]


def _check_values(values: dict[str, Any]) -> None:
    model = values["model"]
    check_divisible(model, "width", "heads")
    check_divisible(model, "heads", "kv_heads")
    check_synthetic_rows(values["data"])
    if model["width"] // model["heads"] % 2:
        raise BadInput(
            f"model.width / model.heads = {model['width'] // model['heads']} is odd, and rotary positions need pairs; "
            "choose them so that it is even"
        )
    if model["sequence"] > model["positions"]:
        raise BadInput(
            f"model.sequence={model['sequence']} is more than model.positions={model['positions']}; lower it"
        )
    targets = values["lora"]["targets"]
    if not targets:
        raise BadInput('lora.targets is empty: nothing would be trained; set it, for example to ["q_proj", "v_proj"]')
    for target in targets:
        if target not in LINEAR_LAYERS:
            raise unknown_name("layer", str(target), LINEAR_LAYERS, "(lora.targets)")
    folder = model["save_to"]
    if folder and not Path(folder).is_absolute():
        raise BadInput(f"model.save_to={folder} is relative, and workers run in a temporary folder; give a full path")
    if folder and Path(folder).exists():
        raise BadInput(f"model.save_to={folder} already exists; name a new folder")
    parent = next(parent for parent in Path(folder).parents if parent.exists()) if folder else None
    if parent is not None and not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise BadInput(f"model.save_to={folder} cannot be created in {parent}; name a folder with write permission")
    if values["data"]["source"] == "synthetic":
        _check_synthetic(values)


def _check_synthetic(values: dict[str, Any]) -> None:
    evaluation, num_subjects = values["evaluation"], len(SUBJECT_NAMES)
    num_words = synthetic_tokenizer().num_tokens
    if values["model"]["vocabulary"] < num_words:
        raise BadInput(
            f"data.source=synthetic has {num_words} words, more than model.vocabulary={values['model']['vocabulary']}; "
            f"set that to {num_words} or more"
        )
    if evaluation["subjects"] > num_subjects:
        raise BadInput(
            f"data.source=synthetic has {num_subjects} subjects, and evaluation.subjects={evaluation['subjects']}; "
            f"set it to {num_subjects} or less"
        )
    if evaluation["subjects"] and not evaluation["questions"]:
        raise BadInput(
            "data.source=synthetic generates as many questions per subject as evaluation.questions says, and it is 0; "
            "set it, e.g. to 60"
        )


def _checked_text(folder: Path, values: dict[str, Any]) -> list[Path]:
    tokenizer = check_tokenizer(folder / CHECKPOINT, values["model"]["vocabulary"])
    texts = [folder / FOLDER / f"{split}.json" for split in SPLITS]
    for path, key in zip(texts, ("rows", "eval_rows", "eval_rows"), strict=True):
        dialogues = read_dialogues(path)[: values["data"][key] or None]
        # Only as many dialogues as are certain to fill one row.
        packed_rows(str(path), dialogues[: values["model"]["sequence"]], tokenizer, values["model"]["sequence"])
    questions = question_files(folder, values["evaluation"]["subjects"])
    for path in questions:
        found, num_shots = read_questions(path), values["evaluation"]["shots"]
        if path.parent.name == "dev" and len(found) < num_shots:
            raise BadInput(f"{path} has {len(found)} examples, fewer than evaluation.shots={num_shots}; {GET_MMLU}")
    if questions:
        tokenizer.answers()
    return [folder / CHECKPOINT / "tokenizer.model", *texts, *questions]


# --- rows -------------------------------------------------------------------------------------------------------------

FOLDER = "samsum_dataset"
SPLITS = ("train", "val", "test")
IGNORED = -100
"""The label that torch's cross entropy ignores."""

GET_SAMSUM = f"unpack SAMSum's corpus.7z (train.json, val.json, test.json) into {FOLDER} of --data-dir"

Dialogue = dict[str, str]
"""With `dialogue` and `summary`."""


@dataclass(frozen=True)
class Rows:
    """Every row is full: the remainder at the end of the text is dropped, as the original does."""

    name: str
    tokens: array[int]
    sequence: int

    def __len__(self) -> int:
        return len(self.tokens) // self.sequence

    def __getitem__(self, row: int) -> array[int]:
        return self.tokens[row * self.sequence : (row + 1) * self.sequence]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.tokens.tobytes()).hexdigest()


@dataclass(frozen=True)
class Data:
    tokenizer: Tokenizer
    train: Rows
    validation: Rows
    test: Rows
    subjects: list[Subject]


def load_data(config: Any, data_dir: Path | None) -> Data:
    """Return the rows of all splits and the questions, the same on every rank."""
    data, evaluation = config.data, config.evaluation
    sizes = dict(zip(SPLITS, (data.rows, data.eval_rows, data.eval_rows), strict=True))
    tokenizer: Tokenizer
    if data.source == "synthetic":
        tokenizer = synthetic_tokenizer()
        splits = [synthetic_dialogues(split, size, misleading=data.misleading) for split, size in sizes.items()]
        subjects = synthetic_subjects(evaluation.subjects, evaluation.questions)
    else:
        assert data_dir is not None, "check_files requires --data-dir"
        tokenizer = SentencePieceTokenizer(data_dir / CHECKPOINT / "tokenizer.model")
        splits = [read_dialogues(data_dir / FOLDER / f"{split}.json")[: size or None] for split, size in sizes.items()]
        subjects = read_subjects(data_dir, evaluation.subjects, evaluation.questions)
    train, validation, test = (
        packed_rows(f"{data.source} {name}", dialogues, tokenizer, config.model.sequence)
        for name, dialogues in zip(SPLITS, splits, strict=True)
    )
    return Data(tokenizer, train, validation, test, subjects)


def training_text(dialogue: Dialogue) -> str:
    return f"Summarize this dialog:\n{dialogue['dialogue']}\n---\nSummary:\n{dialogue['summary']}"


def packed_rows(name: str, dialogues: Iterable[Dialogue], tokenizer: Tokenizer, sequence: int) -> Rows:
    """Join all texts in the order of the file, each from BOS to EOS, and cut them into rows."""
    tokens = array("i")
    for dialogue in dialogues:
        tokens.extend((tokenizer.bos, *tokenizer.encode(training_text(dialogue)), tokenizer.eos))
    rows = Rows(name, tokens, sequence)
    if not len(rows):
        raise BadInput(
            f"{name} has {len(tokens)} tokens, fewer than one row of model.sequence={sequence}; take more dialogues "
            "(data.rows, data.eval_rows) or a shorter sequence"
        )
    return rows


# --- SAMSum -----------------------------------------------------------------------------------------------------------


def read_dialogues(path: Path) -> list[Dialogue]:
    found = read_json(path, GET_SAMSUM)
    if not isinstance(found, list) or not found:
        raise BadInput(f"{path} has to be an array of dialogues, and not an empty one; {GET_SAMSUM}")
    for number, entry in enumerate(found, 1):
        if not isinstance(entry, dict):
            raise BadInput(f"{path} entry {number} is not an object with `dialogue` and `summary`; {GET_SAMSUM}")
        for key in ("dialogue", "summary"):
            if not isinstance(entry.get(key), str):
                raise BadInput(f"{path} entry {number} has no text called `{key}`; {GET_SAMSUM}")
    return [{"dialogue": entry["dialogue"], "summary": entry["summary"]} for entry in found]


# --- synthetic texts --------------------------------------------------------------------------------------------------


def synthetic_tokenizer() -> WordTokenizer:
    return WordTokenizer([training_text({"dialogue": "", "summary": ""}), *synthetic_words()])


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


def synthetic_dialogues(split: str, num_rows: int, *, misleading: bool = False) -> list[Dialogue]:
    """Make dialogues in which one person reads questions with their answers to another."""
    rng = random.Random(f"dialogues {split}")
    weights = MISLEADING_KIND_WEIGHTS if misleading else KIND_WEIGHTS
    dialogues = []
    for _ in range(num_rows):
        reader, listener = rng.sample(PEOPLE, 2)
        *first, last = (_synthetic_question(rng, weights) for _ in range(rng.randint(2, 1 + NUM_DEV)))
        quiz = prompt_text(Subject(rng.choice(SUBJECT_NAMES), "", (), ()), first, last)
        dialogue = f"{reader}: {quiz} {LETTERS[last.answer]}"
        summary = f"{listener} learns about {KINDS[last.answer]} from {reader}."
        dialogues.append({"dialogue": dialogue, "summary": summary})
    return dialogues


def synthetic_words() -> list[str]:
    """Return texts that together contain every word of the synthetic data."""
    things = [thing for kind in THINGS for thing in kind]
    names = [*PEOPLE, *(f"{name}:" for name in PEOPLE), *KINDS, *things, *SUBJECT_NAMES]
    (example,) = synthetic_dialogues("example", 1)
    return [" ".join(names), example["dialogue"], example["summary"]]


def synthetic_subjects(num_subjects: int, num_questions: int) -> list[Subject]:
    subjects = []
    for name in SUBJECT_NAMES[:num_subjects]:
        rng = random.Random(f"questions {name}")
        found = tuple(_synthetic_question(rng, KIND_WEIGHTS) for _ in range(NUM_DEV + num_questions))
        subjects.append(Subject(name, "made up", found[:NUM_DEV], found[NUM_DEV:]))
    return subjects


def _synthetic_question(rng: random.Random, weights: tuple[int, ...]) -> Question:
    (kind,) = rng.choices(range(len(KINDS)), weights)
    return Question(f"what is {rng.choice(THINGS[kind])}?", KINDS, kind)


# --- tokenizers -------------------------------------------------------------------------------------------------------


class Tokenizer(Protocol):
    bos: int
    eos: int
    num_tokens: int

    def encode(self, text: str) -> list[int]:
        """Return ids without BOS and EOS, which the caller adds."""
        ...

    def answers(self) -> AnswerTokens: ...


class SentencePieceTokenizer:
    def __init__(self, path: Path) -> None:
        """Raise BadInput for a file that is not a SentencePiece model, or has no BOS or EOS."""
        self._processor = open_sentencepiece(path, "take tokenizer.model of Llama 2")
        self._path = path
        self.bos, self.eos = self._processor.bos_id(), self._processor.eos_id()
        self.num_tokens = self._processor.vocab_size()
        for name, token in (("BOS", self.bos), ("EOS", self.eos)):
            if token < 0:
                raise BadInput(f"{path} has no {name} token, which every row needs; take tokenizer.model of Llama 2")

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def answers(self) -> AnswerTokens:
        """Return the tokens of the letters. Usually one with its leading space is one piece. Very small vocabularies
        lack some of these; then the space is a separate piece for all four letters."""
        with_space = [self._piece(f"▁{letter}") for letter in LETTERS]
        if None not in with_space:
            return AnswerTokens((), tuple(token for token in with_space if token is not None))
        pieces = [self._piece(piece) for piece in ("▁", *LETTERS)]
        found = [token for token in pieces if token is not None]
        if len(found) < len(pieces):
            raise BadInput(f"{self._path} has no pieces for the letters A to D; take tokenizer.model of Llama 2")
        return AnswerTokens((found[0],), tuple(found[1:]))

    def _piece(self, text: str) -> int | None:
        token = self._processor.piece_to_id(text)
        return None if token == self._processor.unk_id() else int(token)


class WordTokenizer:
    """Knows whole words (with a trailing colon), punctuation marks and line ends; 0 is BOS, 1 is EOS.

    Knows the words of `texts` and raises KeyError for any other.
    """

    bos, eos = 0, 1

    def __init__(self, texts: Sequence[str]) -> None:
        words = sorted({word for text in texts for word in self._split(text)} | set(LETTERS))
        self._ids = {word: number for number, word in enumerate(words, 2)}
        self.num_tokens = len(words) + 2

    def encode(self, text: str) -> list[int]:
        return [self._ids[word] for word in self._split(text)]

    def answers(self) -> AnswerTokens:
        return AnswerTokens((), tuple(self._ids[letter] for letter in LETTERS))

    @staticmethod
    def _split(text: str) -> list[str]:
        return re.findall(r"\w+:?|[^\w ]", text)


# --- checkpoint -------------------------------------------------------------------------------------------------------

CHECKPOINT = "llama2_7b_hf"
GET_CHECKPOINT = (
    "download config.json, tokenizer.model and the weights of https://huggingface.co/meta-llama/Llama-2-7b-hf into the "
    f"folder {CHECKPOINT} of --data-dir"
)
FIT_CHECKPOINT = "set model.* to the values of that checkpoint, or model.checkpoint=false to start from random weights"

Model = dict[str, Any]
"""The `model` values of a run."""


def check_tokenizer(folder: Path, vocabulary: int) -> SentencePieceTokenizer:
    path = require_file(folder / "tokenizer.model", GET_CHECKPOINT)
    tokenizer = SentencePieceTokenizer(path)
    check_vocabulary(path, tokenizer.num_tokens, vocabulary, GET_CHECKPOINT)
    return tokenizer


def check_checkpoint(folder: Path, model: Model) -> list[Path]:
    """Return config.json and the files of the weights."""
    path = folder / "config.json"
    config = read_json_object(path, GET_CHECKPOINT)
    if config.get("model_type") != "llama":
        kind = shown(config.get("model_type"))
        raise BadInput(f"{path} is of a model of type {kind!r}, not llama; {GET_CHECKPOINT}")
    check_llama_config(path, config, model, FIT_CHECKPOINT)
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or layers < model["layers"]:
        raise BadInput(
            f"{path} is of a model with num_hidden_layers={shown(layers)}, fewer than model.layers={model['layers']}; "
            f"{FIT_CHECKPOINT}"
        )
    # Files that transformers reads or obeys without being asked, if they are there.
    if is_there(folder / "generation_config.json"):
        read_json_object(folder / "generation_config.json", GET_CHECKPOINT)
    if is_there(folder / "adapter_config.json"):
        raise BadInput(f"{folder} has adapter_config.json: it is an adapter, not a whole model; {GET_CHECKPOINT}")
    files = find_weights(folder, GET_CHECKPOINT)
    if can_look_into(files):
        shapes = read_shapes(files, GET_CHECKPOINT)
        used = {name: shape for name, shape in shapes.items() if is_used(name, model["layers"], tied=model["tied"])}
        check_shapes(files[0], used, llama_shapes(model), FIT_CHECKPOINT)
    return [path, *files]


def is_used(name: str, num_layers: int, *, tied: bool) -> bool:
    """Return False for layers beyond `num_layers`, for a second copy of tied weights, and for the rotary frequencies
    that old folders hold although every model computes them itself."""
    if name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight"):
        return False
    return layer_number(name) < num_layers

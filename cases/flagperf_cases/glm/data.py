"""Read and check what GLM is trained on: ReCoRD or synthetic stories as token sequences, and the published checkpoint.

In this order: check_files, the samples of a run, the tokenizer, the checkpoint. Importable without torch.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import (
    Shape,
    can_look_into,
    check_shapes,
    is_state,
    layer_number,
    load_saved,
    shapes_of,
)
from flagperf_cases.data_files import (
    check_divisible,
    check_synthetic_rows,
    data_folder,
    describe_file,
    read_lines,
    require_file,
)
from flagperf_cases.glm.record import (
    BLANK,
    GET_RECORD,
    MAX_POSITIONS,
    NO_HDF5,
    WORDS,
    Cloze,
    Record,
    entity_texts,
    evaluation_clozes,
    query_text,
    read_records,
    synthetic_records,
    training_clozes,
)
from flagperf_cases.tokenizer_files import check_vocabulary, read_words

if TYPE_CHECKING:
    import torch
    from tokenizers import BertWordPieceTokenizer

VOCABULARY = "bert-base-uncased/vocab.txt"
TRAIN, VALIDATION = "ReCoRD/train.jsonl", "ReCoRD/val.jsonl"
GET_VOCABULARY = (
    "download vocab.txt of https://huggingface.co/bert-base-uncased into the folder bert-base-uncased of --data-dir"
)


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """Return the files that a run with these values reads, each of them validated. Raise BadInput for the first
    problem."""
    _check_values(values)
    real_data, checkpoint = values["data"]["source"] == "record", values["model"]["checkpoint"]
    if not real_data and not checkpoint:
        return []
    folder = data_folder(data_dir, f"ReCoRD/, {Path(VOCABULARY).parent}/ and {CHECKPOINT}/")
    files: list[Path] = []
    if real_data:
        missing = [folder / name for name in (TRAIN, VALIDATION) if not (folder / name).exists()]
        if missing and any(name.endswith(".hdf5") for _, _, names in os.walk(folder) for name in names):
            # The original benchmark's files have neither the text nor the vocabulary.
            raise BadInput(f"{missing[0]} does not exist, and {NO_HDF5}; {GET_RECORD}")
        files = [folder / TRAIN, folder / VALIDATION, folder / VOCABULARY]
        words = read_words(files[2], SPECIAL, GET_VOCABULARY)
        check_vocabulary(files[2], len(words) + NUM_ANSWER_TOKENS, values["model"]["vocabulary"], GET_VOCABULARY)
        for path in files[:2]:
            _check_records(path, files[2], values["model"]["sequence"])
    if checkpoint:
        files += check_checkpoint(folder / CHECKPOINT, values["model"])
    return [describe_file(path, folder) for path in files]


def _check_values(values: dict[str, Any]) -> None:
    model, training = values["model"], values["training"]
    check_divisible(model, "width", "heads")
    check_synthetic_rows(values["data"])
    if training["schedule_steps"] < training["accumulate"]:
        raise BadInput(
            f"training.schedule_steps={training['schedule_steps']} micro-batches are less than one step of "
            f"training.accumulate={training['accumulate']}; raise the first"
        )
    if values["data"]["source"] == "synthetic":
        num_tokens = len(SPECIAL) + len(WORDS) + NUM_ANSWER_TOKENS
        for key, needed in (("vocabulary", num_tokens), ("sequence", MAX_POSITIONS)):
            if model[key] < needed:
                raise BadInput(f"data.source=synthetic needs model.{key}={needed}, and it is {model[key]}; raise it")


def _check_records(path: Path, vocabulary: Path, length: int) -> None:
    """Raise BadInput for a query that does not fit. A token takes at least one byte, so almost no text has to be
    tokenized to know that it does."""
    long = []
    for record in read_records(path):
        longest = max(len(text.encode()) for text in entity_texts(record))
        if any(NUM_FRAME_TOKENS + len(query_text(each).encode()) + longest > length for each in record.qas):
            long.append(record)
    if long:
        make_samples(str(path), evaluation_clozes(long), WordPieceTokenizer.from_file(vocabulary), length)


# --- samples ----------------------------------------------------------------------------------------------------------


def load_data(config: Any, data_dir: Path | None) -> tuple[Samples, Samples]:
    """Return the training and the evaluation samples, the same on every rank."""
    data, length = config.data, config.model.sequence
    records: list[Iterable[Record]]
    if data.source == "synthetic":
        tokenizer = WordPieceTokenizer.for_synthetic_data()
        records = [synthetic_records("train", data.rows), synthetic_records("eval", data.eval_rows)]
        names = ["synthetic train", "synthetic eval"]
    else:
        assert data_dir is not None, "check_files requires --data-dir"
        tokenizer = WordPieceTokenizer.from_file(data_dir / VOCABULARY)
        records = [read_records(data_dir / name) for name in (TRAIN, VALIDATION)]
        names = [TRAIN, VALIDATION]
    clozes = [
        islice(training_clozes(records[0]), data.rows or None),
        islice(evaluation_clozes(records[1]), data.eval_rows or None),
    ]
    train, validation = (make_samples(name, each, tokenizer, length) for name, each in zip(names, clozes, strict=True))
    return (swap_passages(train), swap_passages(validation)) if data.swap_passages else (train, validation)


NUM_FRAME_TOKENS = 4
"""Positions that hold neither text nor answer: [CLS], [MASK], [PAD], start-of-piece."""


@dataclass(frozen=True)
class Sample:
    """Holds a tokenized cloze. Samples with the same passage share its tokens."""

    passage: Tokens
    before: Tokens
    after: Tokens
    candidates: tuple[Tokens, ...]
    texts: tuple[str, ...]
    """The candidates as text."""
    right: frozenset[int]
    """Indices of the candidates that are answers."""


@dataclass(frozen=True)
class FilledSequence:
    """Holds a text followed by one candidate, without padding."""

    tokens: list[int]
    context: int
    """Length of the text."""
    blank: int
    """Position of [MASK]."""
    targets: list[int]
    """What is to be predicted from start-of-piece on."""


@dataclass(frozen=True)
class Samples:
    name: str
    samples: list[Sample]
    tokenizer: WordPieceTokenizer
    length: int
    """Positions of a sequence, padding included."""

    def __len__(self) -> int:
        return len(self.samples)

    def fill_blank(self, row: int, candidate: int) -> FilledSequence:
        """Return the text with a candidate. Only the passage is ever truncated, at its end."""
        sample, tokenizer = self.samples[row], self.tokenizer
        answer = sample.candidates[candidate]
        room = self.length - NUM_FRAME_TOKENS - len(sample.before) - len(sample.after) - len(answer)
        text = [tokenizer.cls, *sample.passage[:room], *sample.before]
        blank = len(text)
        text += [tokenizer.mask, *sample.after, tokenizer.pad]
        return FilledSequence([*text, tokenizer.start, *answer], len(text), blank, [*answer, tokenizer.end])

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for sample in self.samples:
            for tokens in (sample.passage, sample.before, sample.after, *sample.candidates):
                digest.update(len(tokens).to_bytes(4, "little") + tokens.tobytes())
        return digest.hexdigest()


def make_samples(name: str, clozes: Iterable[Cloze], tokenizer: WordPieceTokenizer, length: int) -> Samples:
    """Raise BadInput for a query that does not fit into `length` with all of its candidates."""
    clozes = list(clozes)
    texts = list(dict.fromkeys(text for cloze in clozes for text in _texts(cloze)))
    tokens = dict(zip(texts, tokenizer.encode(texts), strict=True))
    samples = []
    for cloze in clozes:
        passage, before, after, *candidates = (tokens[text] for text in _texts(cloze))
        sample = Sample(passage, before, after, tuple(candidates), cloze.candidates, cloze.right)
        needed = NUM_FRAME_TOKENS + len(before) + len(after) + max(map(len, candidates))
        if needed > length:
            raise BadInput(
                f"{name}: the query {cloze.query[:60]!r} takes {needed} positions with its longest candidate, and "
                f"model.sequence is {length}; set that to {needed} or more"
            )
        samples.append(sample)
    return Samples(name, samples, tokenizer, length)


def swap_passages(samples: Samples) -> Samples:
    """Give every query the passage of another one, so that nothing can be learned."""
    half = len(samples) // 2
    passages = [sample.passage for sample in (*samples.samples[half:], *samples.samples[:half])]
    swapped = [replace(sample, passage=passage) for sample, passage in zip(samples.samples, passages, strict=True)]
    return replace(samples, samples=swapped)


def _texts(cloze: Cloze) -> tuple[str, ...]:
    before, _, after = cloze.query.partition(BLANK)
    return (cloze.passage, before, after, *cloze.candidates)


# --- tokenizer --------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Tokens = array[int]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_ANSWER_TOKENS = 2
"""Start and end of an answer. Their ids follow the vocabulary."""

_TEXTS_PER_CALL = 1000
"""Limits memory: the tokenizer's own results take a hundred bytes per token."""


class WordPieceTokenizer:
    def __init__(self, vocabulary: str | dict[str, int]) -> None:
        # The loader's worker processes never tokenize. The variable prevents a warning about forking in each of them.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        from tokenizers import BertWordPieceTokenizer

        self._tokenizer: BertWordPieceTokenizer = BertWordPieceTokenizer(vocabulary, lowercase=True)
        self.pad, self.cls, self.mask = map(self._tokenizer.token_to_id, ("[PAD]", "[CLS]", "[MASK]"))
        self.start = self._tokenizer.get_vocab_size()
        self.end = self.start + 1

    @classmethod
    def from_file(cls, path: Path) -> WordPieceTokenizer:
        return cls(str(path))

    @classmethod
    def for_synthetic_data(cls) -> WordPieceTokenizer:
        return cls({word: index for index, word in enumerate((*SPECIAL, *WORDS))})

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Tokenize texts, without special tokens."""
        found: list[Tokens] = []
        for first in range(0, len(texts), _TEXTS_PER_CALL):
            batch = list(texts[first : first + _TEXTS_PER_CALL])
            found += [
                array("i", encoding.ids) for encoding in self._tokenizer.encode_batch(batch, add_special_tokens=False)
            ]
        return found


# --- checkpoint -------------------------------------------------------------------------------------------------------

CHECKPOINT = "blocklm-large-blank"
ITERATION = "latest_checkpointed_iteration.txt"
WEIGHTS = "mp_rank_00_model_states.pt"
POSITIONS = ("transformer.position_embeddings.weight", "transformer.block_position_embeddings.weight")
GET_CHECKPOINT = (
    f"take the published checkpoint (GLM-Large, English, `{CHECKPOINT}`, of https://github.com/THUDM/GLM) and unpack "
    "it in the folder given as --data-dir, or set model.checkpoint=false to start from random weights"
)
FIT_CHECKPOINT = (
    "it has to be the published checkpoint, with model.* set to its values; model.checkpoint=false starts from random "
    "weights"
)


def check_checkpoint(folder: Path, model: Mapping[str, Any]) -> list[Path]:
    """Return the files of a checkpoint that has every weight of this model in its shape. No weight is read."""
    path = weights_file(folder)
    if can_look_into([path]):
        found = used_weights(path, load_saved(path, GET_CHECKPOINT, device="meta"), model["layers"])
        wanted = weight_shapes(model)
        # The checkpoint may have fewer positions, or more.
        shapes = {
            name: (wanted[name][0], *shape[1:]) if name in POSITIONS else shape
            for name, shape in shapes_of(found).items()
        }
        check_shapes(path, shapes, wanted, FIT_CHECKPOINT)
    return [folder / ITERATION, path]


def weights_file(folder: Path) -> Path:
    """Find the weights of the iteration that the folder names as its latest."""
    iteration = read_lines(folder / ITERATION, GET_CHECKPOINT)[0].strip()
    if not iteration.isascii() or not iteration.isalnum():
        raise BadInput(
            f"{folder / ITERATION} should hold the name of a folder like 200000, not {iteration[:60]!r}; "
            f"{GET_CHECKPOINT}"
        )
    return require_file(folder / iteration / WEIGHTS, GET_CHECKPOINT)


def weight_shapes(model: Mapping[str, Any]) -> dict[str, Shape]:
    width, ffn, positions = model["width"], model["ffn"], model["sequence"] + 1
    shapes: dict[str, Shape] = {"word_embeddings.weight": (model["vocabulary"], width)}
    shapes |= dict.fromkeys(POSITIONS, (positions, width))
    for layer in range(model["layers"]):
        prefix = f"transformer.layers.{layer}."
        for part, (rows, columns) in {
            "attention.query_key_value": (3 * width, width),
            "attention.dense": (width, width),
            "mlp.dense_h_to_4h": (ffn, width),
            "mlp.dense_4h_to_h": (width, ffn),
        }.items():
            shapes |= {f"{prefix}{part}.weight": (rows, columns), f"{prefix}{part}.bias": (rows,)}
        shapes |= _norm(f"{prefix}input_layernorm", width) | _norm(f"{prefix}post_attention_layernorm", width)
    return shapes | _norm("transformer.final_layernorm", width)


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def used_weights(path: Path, content: Any, num_layers: int) -> dict[str, torch.Tensor]:
    """Choose the weights of the first layers from what the file holds."""
    weights: Any = content.get("module") if isinstance(content, dict) else None
    if not is_state(weights):
        raise BadInput(f"{path} has no weights under the key `module`; {GET_CHECKPOINT}")
    return {name: weight for name, weight in weights.items() if layer_number(name) < num_layers}

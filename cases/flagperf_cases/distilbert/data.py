"""Read and check what DistilBERT is trained on: GLUE's SST-2 or synthetic sentences, and the published checkpoint.

In this order: check_files, the sentences of a run, SST-2, synthetic ones, the checkpoint. Importable without torch.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import (
    Shape,
    can_look_into,
    check_config_value,
    check_shapes,
    find_weights,
    layer_number,
    read_shapes,
)
from flagperf_cases.data_files import (
    check_divisible,
    check_synthetic_rows,
    data_folder,
    describe_file,
    read_json_object,
    read_lines,
    shown,
)
from flagperf_cases.tokenizer_files import PADDING, read_words


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """Return the files that a run with these values reads, each of them validated. Raise BadInput for the first
    problem."""
    check_divisible(values["model"], "width", "heads")
    check_synthetic_rows(values["data"])
    real_data, model = values["data"]["source"] == "sst2", values["model"]
    if not real_data and not model["checkpoint"]:
        return []
    folder = data_folder(data_dir, f"SST-2/ and {CHECKPOINT}/")
    files: list[Path] = []
    if real_data:
        files = [folder / "SST-2/train.tsv", folder / "SST-2/dev.tsv", folder / CHECKPOINT / "vocab.txt"]
        for path in files[:2]:
            read_tsv(path)
        check_vocabulary(files[2], model)
    if model["checkpoint"]:
        files += check_checkpoint(folder / CHECKPOINT, model)
    return [describe_file(path, folder) for path in files]


# --- sentences --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sentences:
    name: str
    tokens: list[list[int]]
    """Token ids of each row, [CLS] and [SEP] included, without padding."""
    labels: list[int]

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for label, tokens in zip(self.labels, self.tokens, strict=True):
            digest.update(f"{label} {tokens}\n".encode())
        return digest.hexdigest()


def load_data(config: Any, data_dir: Path | None) -> tuple[Sentences, Sentences]:
    """Return the training and the evaluation rows, the same on every rank."""
    data, model = config.data, config.model
    if data.source == "synthetic":
        train = synthetic_sentences("train", data.rows, model.vocabulary, model.sequence)
        validation = synthetic_sentences("eval", data.eval_rows, model.vocabulary, model.sequence)
    else:
        assert data_dir is not None, "check_files requires --data-dir"
        train = sst2(data_dir, "train", data.rows, model.sequence)
        validation = sst2(data_dir, "dev", data.eval_rows, model.sequence)
    if data.shuffle_labels:
        for sentences in (train, validation):
            random.Random(f"labels of {sentences.name}").shuffle(sentences.labels)
    return train, validation


# --- SST-2 ------------------------------------------------------------------------------------------------------------

HEADER = "sentence\tlabel"
GET_SST2 = "take SST-2.zip of GLUE (https://gluebenchmark.com/tasks) and unpack it in the folder given as --data-dir"


def sst2(data_dir: Path, split: str, num_rows: int, sequence: int) -> Sentences:
    """Return the first `num_rows` rows (0: all), tokenized by BERT's lower-casing WordPiece."""
    # The loader's worker processes never tokenize. The variable prevents a warning about forking in each of them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer.from_file(str(data_dir / CHECKPOINT / "vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(max_length=sequence)
    rows = read_tsv(data_dir / "SST-2" / f"{split}.tsv")[: num_rows or None]
    tokens = [encoding.ids for encoding in tokenizer.encode_batch([text for text, _ in rows])]
    return Sentences(f"SST-2 {split}", tokens, [label for _, label in rows])


def read_tsv(path: Path) -> list[tuple[str, int]]:
    """Read GLUE's own format: a header, then sentence and label separated by a tab. Nothing is quoted."""
    lines = read_lines(path, GET_SST2)
    if lines[0] != HEADER:
        raise BadInput(
            f"{path} line 1: expected the header {HEADER!r}, found {lines[0][:60]!r}; "
            f"there is another version of SST-2 with 6,920 rows and no header, which cannot be used; {GET_SST2}"
        )
    if len(lines) == 1:
        raise BadInput(f"{path} has a header and no rows; {GET_SST2}")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        columns = line.split("\t")
        if len(columns) != 2:
            raise BadInput(f"{path} line {number}: expected sentence<TAB>label, found {line[:60]!r}; {GET_SST2}")
        sentence, label = columns
        if not sentence.strip():
            raise BadInput(f"{path} line {number}: the sentence is empty; {GET_SST2}")
        if label not in ("0", "1"):
            raise BadInput(f"{path} line {number}: the label must be 0 or 1, found {label[:20]!r}; {GET_SST2}")
        rows.append((sentence, int(label)))
    return rows


# --- synthetic sentences ----------------------------------------------------------------------------------------------

# Sentences of a small artificial language. The majority of three opinion words decides the label, and "not" inverts the
# opinion word after it. A quarter of the vocabulary is bad, a quarter good, the rest neutral. Both labels are equally
# frequent, and their sentences equally long.

CLS, SEP, NOT = 1, 2, 3
"""Special words of the language; 0 is padding, as in BERT's vocabulary."""


def synthetic_sentences(split: str, num_rows: int, vocabulary: int, sequence: int) -> Sentences:
    """Make sentences that are the same on every machine. `split` is part of the seed."""
    rng = random.Random(f"sentences {split}")
    bad = NOT + 1
    quarter = (vocabulary - bad) // 4
    labels = [row % 2 for row in range(num_rows)]
    tokens = []
    for label in labels:
        phrases = []
        for opinion in (label, label, rng.randrange(2)):
            negated = rng.random() < 0.03
            word = bad + quarter * (opinion ^ negated) + rng.randrange(quarter)
            phrases.append([NOT, word] if negated else [word])
        num_words = rng.randint(6, min(sequence, 64) - 2)
        while sum(map(len, phrases)) < num_words:
            phrases.append([rng.randrange(bad + 2 * quarter, vocabulary)])
        rng.shuffle(phrases)
        tokens.append([CLS, *(word for phrase in phrases for word in phrase), SEP])
    return Sentences(f"synthetic {split}", tokens, labels)


# --- checkpoint -------------------------------------------------------------------------------------------------------

CHECKPOINT = "distilbert-base-uncased"
GET_CHECKPOINT = (
    f"download config.json, vocab.txt and model.safetensors of {CHECKPOINT} (https://huggingface.co/{CHECKPOINT}) "
    f"into the folder {CHECKPOINT} of --data-dir"
)
FIT_CHECKPOINT = f"it has to be {CHECKPOINT}, with model.* set to the values of that checkpoint"
FIT_VALUE = "set it to that, or model.checkpoint=false to start from random weights"

SPECIAL_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
UNUSED = ("vocab_", "pre_classifier.", "classifier.")
"""Weights of a checkpoint that are not loaded: the classifier always starts random."""

POSITIONS = "distilbert.embeddings.position_embeddings.weight"

T = TypeVar("T")


def check_vocabulary(path: Path, model: Mapping[str, Any]) -> None:
    words, size = read_words(path, SPECIAL_WORDS, GET_CHECKPOINT), model["vocabulary"]
    if len(words) > size or len(words) < (size if model["checkpoint"] else size - PADDING + 1):
        fewer_or_more = "more" if len(words) > size else "fewer"
        raise BadInput(
            f"{path} has {len(words)} words, {fewer_or_more} than model.vocabulary={size}; "
            f"set that to {len(words)} if this is the right file, else {GET_CHECKPOINT}"
        )


def check_checkpoint(folder: Path, model: Mapping[str, Any]) -> list[Path]:
    """Return the files that the weights are read from, checked against `model`, the model.* values of this run."""
    check_config(folder / "config.json", model)
    weights = find_weights(folder, GET_CHECKPOINT)
    if can_look_into(weights):
        found = encoder_part(read_shapes(weights, GET_CHECKPOINT), model["layers"])
        if found.get(POSITIONS):
            rows, *rest = found[POSITIONS]
            found[POSITIONS] = (min(rows, model["sequence"]), *rest)
        check_shapes(weights[0], found, encoder_shapes(model), FIT_CHECKPOINT)
    return [folder / "config.json", *weights]


def check_config(path: Path, model: Mapping[str, Any]) -> None:
    """Check what shapes cannot show (heads, activation), and what reads better by name than as a shape."""
    config = read_json_object(path, GET_CHECKPOINT)
    if config.get("model_type", "distilbert") != "distilbert" or config.get("activation", "gelu") != "gelu":
        kind = f"model_type {shown(config.get('model_type'))!r}, activation {shown(config.get('activation'))!r}"
        raise BadInput(f"{path} is not of a DistilBERT with gelu ({kind}); {GET_CHECKPOINT}")
    for name, key in (("dim", "width"), ("hidden_dim", "ffn"), ("n_heads", "heads"), ("vocab_size", "vocabulary")):
        check_config_value(path, name, _size(path, config, name), key, model[key], FIT_VALUE)
    for name, key in (("n_layers", "layers"), ("max_position_embeddings", "sequence")):
        if _size(path, config, name) < model[key]:
            raise BadInput(
                f"{path} is of a model with {name}={config[name]}, fewer than model.{key}={model[key]}; "
                f"lower it, or set model.checkpoint=false to start from random weights"
            )


def _size(path: Path, config: Mapping[str, Any], name: str) -> int:
    if type(config.get(name)) is not int:
        found = f"is {shown(repr(config[name]))}, not a whole number" if name in config else "is missing"
        raise BadInput(f"{path}: {name} {found}; {GET_CHECKPOINT}")
    return int(config[name])


def encoder_shapes(model: Mapping[str, Any]) -> dict[str, Shape]:
    """Return the shape of every weight of the encoder, by the names that transformers uses."""
    width, ffn = model["width"], model["ffn"]
    shapes: dict[str, Shape] = {
        "distilbert.embeddings.word_embeddings.weight": (model["vocabulary"], width),
        POSITIONS: (model["sequence"], width),
        **_norm("distilbert.embeddings.LayerNorm", width),
    }
    for index in range(model["layers"]):
        layer = f"distilbert.transformer.layer.{index}"
        for name in ("q_lin", "k_lin", "v_lin", "out_lin"):
            shapes |= _linear(f"{layer}.attention.{name}", width, width)
        shapes |= _norm(f"{layer}.sa_layer_norm", width)
        shapes |= _linear(f"{layer}.ffn.lin1", width, ffn)
        shapes |= _linear(f"{layer}.ffn.lin2", ffn, width)
        shapes |= _norm(f"{layer}.output_layer_norm", width)
    return shapes


def _linear(name: str, inputs: int, outputs: int) -> dict[str, Shape]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def encoder_part(state: Mapping[str, T], num_layers: int) -> dict[str, T]:
    """Choose the weights of the encoder's first layers, from a checkpoint that was saved with or without a head."""
    used = {name: value for name, value in state.items() if not name.startswith(UNUSED)}
    if not any(name.startswith("distilbert.") for name in used):
        used = {f"distilbert.{name}": value for name, value in used.items()}
    return {name: value for name, value in used.items() if layer_number(name) < num_layers}

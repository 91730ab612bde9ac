"""Read and check what Aquila is run on: LAMBADA's samples or synthetic ones, and the tokenizer.

In this order: check_files, estimate, the samples of a run, batches of samples of similar length, tokenizers. The
weights are in checkpoint.py. Importable without torch.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput, Unsupported
from flagperf_cases.aquila_33b.checkpoint import check_checkpoint
from flagperf_cases.data_files import (
    data_folder,
    describe_file,
    is_there,
    parse_json,
    read_json_object,
    read_lines,
    require_file,
    shown,
)
from flagperf_cases.decoder.estimate import FP32, compute_bytes, stage_parameters
from flagperf_cases.decoder.layout import check_layout, layout_of, shape_of
from flagperf_cases.tokenizer_files import check_vocabulary, open_sentencepiece

CONTENTS = "weights, tokenizer and texts"


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """Return the files that a run with these values reads, each of them validated. Raise BadInput for the first
    problem."""
    check_parallel_values(values)
    shape = shape_of(values["model"])
    source, checkpoint = values["data"]["source"], values["model"]["checkpoint"]
    if source == "made_up" and not values["data"]["samples"]:
        raise BadInput("data.source=made_up generates data.samples samples, and that is 0; set it, e.g. to 120")
    files: list[Path] = []
    if source != "made_up":
        folder = data_folder(data_dir, CONTENTS)
        load_data(values, folder)
        files += [texts_file(folder), *tokenizer_files(folder / "tokenizer")]
    if checkpoint != "none":
        files += check_checkpoint(data_folder(data_dir, CONTENTS), checkpoint, shape)
    return [describe_file(path, data_folder(data_dir, CONTENTS)) for path in files]


def check_parallel_values(values: dict[str, Any]) -> None:
    """Raise BadInput if model and batches cannot be spread as asked. Reads no file."""
    shape, layout = shape_of(values["model"]), layout_of(values["parallel"])
    if layout.pp != 1 or layout.dp != 1:
        raise BadInput(
            f"aquila_33b supports tensor parallelism only; TP{layout.tp}PP{layout.pp}DP{layout.dp} was asked for: "
            f"use --parallel TP{layout.world_size}PP1DP1"
        )
    check_layout(shape, layout, 1)
    inference, sequence, tp = values["inference"], values["model"]["sequence"], layout.tp
    for key in ("multiple", "pad_to"):
        if inference[key] % tp:
            raise BadInput(
                f"parallel.tp={tp} does not divide inference.{key}={inference[key]}; choose a multiple of {tp}"
            )
    if inference["pad_to"] and inference["pad_to"] < sequence:
        raise BadInput(
            f"inference.pad_to={inference['pad_to']} is below model.sequence={sequence}; raise it to that, or set it "
            "to 0"
        )


# --- memory -----------------------------------------------------------------------------------------------------------
# Tensors are counted: weights, and the peak of a batch of the longest samples that the values allow. There is no KV
# cache, because nothing is generated. The framework itself, the buffers of the collective library and allocator
# fragmentation are not counted.


def estimate(values: dict[str, Any]) -> dict[str, int]:
    """Return the bytes of a rank by name. All ranks need the same. The activations are those of the larger of two
    places, a block's feed-forward and the head."""
    check_parallel_values(values)
    shape, layout, inference = shape_of(values["model"]), layout_of(values["parallel"]), values["inference"]
    length = inference["pad_to"] or -(-shape.sequence // inference["multiple"]) * inference["multiple"]
    positions, size = inference["batch_size"] * length, compute_bytes(values["precision"])
    # The block's input and the output of attention, both for the rank's positions only; the input of the projections;
    # gate, up and their product.
    block = positions * size * (2 * shape.width // layout.tp + shape.width + 3 * shape.ffn // layout.tp)
    # The head's input; logits as computed and in fp32, their differences from the maximum, and the exponentials.
    num_copies = 2 if size == FP32 else 3
    logits = positions * shape.vocabulary // layout.tp * (size + num_copies * FP32)
    return {
        "parameters": size * stage_parameters(shape, layout, 0),
        "activations": max(block, positions * shape.width * size + logits),
    }


# --- samples ----------------------------------------------------------------------------------------------------------

TEXTS = ("lambada_test_bak.jsonl", "lambada_test.jsonl")
MAX_CHARACTERS = 4096
GET_TEXTS = (
    "take lambada_test.jsonl, LAMBADA's test set in OpenAI's format: a JSON object with the key `text` on each line"
)


@dataclass(frozen=True)
class Sample:
    tokens: tuple[int, ...]
    """Begin token, text, end token. All but the first are scored."""
    last_word: int
    """Number of tokens of the last word, which is right before the end token."""

    @property
    def length(self) -> int:
        return len(self.tokens) - 1


@dataclass(frozen=True)
class Samples:
    name: str
    rows: tuple[Sample, ...]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(repr([row.tokens for row in self.rows]).encode()).hexdigest()


def load_data(values: dict[str, Any], data_dir: Path | None) -> Samples:
    source, model = values["data"]["source"], values["model"]
    if source == "made_up":
        made = synthetic_tokens(values["data"]["samples"], model["vocabulary"], model["sequence"])
        return Samples(source, tuple(Sample(tokens, last_word=1) for tokens in made))
    folder = data_folder(data_dir, CONTENTS)
    path = texts_file(folder)
    tokenizer = open_tokenizer(folder / "tokenizer", model["vocabulary"])
    texts = read_texts(path)[: values["data"]["samples"] or None]
    rows = tuple(make_sample(text, tokenizer) for text in texts)
    for number, row in enumerate(rows, 1):
        where = f"{path} line {number}"
        if row.length > model["sequence"]:
            raise BadInput(f"{where} has {row.length} tokens, above model.sequence={model['sequence']}; raise it")
        if not 0 <= min(row.tokens) <= max(row.tokens) < model["vocabulary"]:
            raise BadInput(
                f"{where}: token {max(row.tokens)} is not below model.vocabulary={model['vocabulary']}; "
                "use the tokenizer that the model is for"
            )
    return Samples(path.name, rows)


def synthetic_tokens(num_samples: int, vocabulary: int, sequence: int) -> list[tuple[int, ...]]:
    """Make random sequences of random lengths, the same on every machine. `sequence` is the largest number of scored
    tokens; a sample has one token more."""
    rng = random.Random("aquila_33b")
    lengths = [rng.randint(max(2, sequence // 4), sequence) for _ in range(num_samples)]
    return [tuple(rng.randrange(vocabulary) for _ in range(length + 1)) for length in lengths]


def texts_file(folder: Path) -> Path:
    for name in TEXTS:
        if is_there(folder / "data" / name):
            return folder / "data" / name
    raise BadInput(f"{folder / 'data'} has neither {TEXTS[0]} nor {TEXTS[1]}; {GET_TEXTS}")


def read_texts(path: Path) -> list[str]:
    texts = []
    for number, line in enumerate(read_lines(path, GET_TEXTS), 1):
        record = parse_json(line, f"{path} line {number}", GET_TEXTS)
        if not isinstance(record, dict) or "text" not in record:
            raise BadInput(f"{path} line {number} is not a JSON object with the key `text`; {GET_TEXTS}")
        text = record["text"]
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f"{path} line {number} has no text; {GET_TEXTS}")
        texts.append(text[:MAX_CHARACTERS])
    return texts


def make_sample(text: str, tokenizer: Tokenizer) -> Sample:
    """Make a sample. The last word's tokens are those after the common prefix of the whole text and the text without
    that word."""
    ids = list(tokenizer.encode(text))
    *before, _ = text.rstrip().rsplit(None, 1)
    context = list(tokenizer.encode(before[0])) if before else []
    shared = next((at for at, (one, other) in enumerate(zip(ids, context, strict=False)) if one != other), len(context))
    return Sample((tokenizer.begin, *ids, tokenizer.end), len(ids) - min(shared, len(ids)))


@dataclass(frozen=True)
class Batch:
    rows: tuple[Sample, ...]
    length: int
    """Positions of each row as it is computed, padding included."""

    @property
    def num_real(self) -> int:
        return sum(row.length for row in self.rows)

    @property
    def num_padding(self) -> int:
        return len(self.rows) * self.length - self.num_real


def make_batches(rows: Sequence[Sample], batch_size: int, *, multiple: int, pad_to: int) -> list[Batch]:
    """Make batches of samples of similar length, the longest first, so that running out of memory shows at once. A
    `pad_to` above 0 pads every sample to it, as the original benchmark does."""
    ordered = sorted(rows, key=lambda row: -row.length)
    groups = [tuple(ordered[begin : begin + batch_size]) for begin in range(0, len(ordered), batch_size)]
    return [Batch(group, pad_to or -(-group[0].length // multiple) * multiple) for group in groups]


def attended_length(batches: Sequence[Batch]) -> int:
    """Return the mean row length over all computed positions, for the FLOPs of attention."""
    positions = sum(len(batch.rows) * batch.length for batch in batches)
    return round(sum(len(batch.rows) * batch.length**2 for batch in batches) / positions)


# --- tokenizers -------------------------------------------------------------------------------------------------------

AQUILA = ("vocab.json", "merges.txt", "special_tokens.txt")
SENTENCEPIECE = "tokenizer.model"
BEGIN, END = "[CLS]", "</s>"
GET_TOKENIZER = "take vocab.json, merges.txt and special_tokens.txt of Aquila's own tokenizer"


@dataclass(frozen=True)
class Tokenizer:
    encode: Callable[[str], Sequence[int]]
    begin: int
    end: int


def tokenizer_files(folder: Path) -> list[Path]:
    """Return Aquila's files, unless the folder has only a SentencePiece model."""
    if is_there(folder / SENTENCEPIECE) and not is_there(folder / AQUILA[0]):
        return [folder / SENTENCEPIECE]
    return [require_file(folder / name, GET_TOKENIZER) for name in AQUILA]


def open_tokenizer(folder: Path, vocabulary: int) -> Tokenizer:
    """Open the tokenizer of a folder. Its ids have to fill the model's `vocabulary`, but for padding."""
    files = tokenizer_files(folder)
    if len(files) > 1:
        return _aquila(files, vocabulary)
    pieces = open_sentencepiece(files[0], GET_TOKENIZER)
    check_vocabulary(files[0], pieces.vocab_size(), vocabulary, GET_TOKENIZER)
    for name, token in (("BOS", pieces.bos_id()), ("EOS", pieces.eos_id())):
        if token < 0:
            raise BadInput(f"{files[0]} has no {name} token, which samples begin or end with; {GET_TOKENIZER}")
    return Tokenizer(pieces.encode, pieces.bos_id(), pieces.eos_id())


def special_ids(vocabulary: Path, special: Path) -> dict[str, int]:
    """Return the ids of the special tokens, which follow the vocabulary in the order of their file."""
    words = read_json_object(vocabulary, GET_TOKENIZER)
    first = len(words)
    if not all(type(number) is int for number in words.values()) or set(words.values()) != set(range(first)):
        raise BadInput(f"{vocabulary} does not number its words from 0 on; {GET_TOKENIZER}")
    names = [line.strip() for line in read_lines(special, GET_TOKENIZER) if line.strip()]
    ids = {name: first + number for number, name in enumerate(names)}
    for name in (BEGIN, END):
        if name not in ids:
            raise BadInput(f"{special} has no line {name}, which samples begin or end with; {GET_TOKENIZER}")
    return ids


def _aquila(files: Sequence[Path], size: int) -> Tokenizer:
    vocabulary, merges, special = files
    ids = special_ids(vocabulary, special)
    check_vocabulary(vocabulary, max(ids.values()) + 1, size, GET_TOKENIZER)
    read_lines(merges, GET_TOKENIZER)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    try:
        from tokenizers import Tokenizer as Engine
        from tokenizers.models import BPE
        from tokenizers.pre_tokenizers import ByteLevel
    except ImportError:
        raise Unsupported("Aquila's tokenizer needs the package tokenizers: pip install tokenizers") from None
    try:
        engine: Any = Engine(BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # noqa: BLE001  the package raises plain Exceptions
        raise BadInput(f"cannot read {vocabulary} with {merges}: {shown(error, 200)}; {GET_TOKENIZER}") from None
    engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return Tokenizer(lambda text: engine.encode(text).ids, ids[BEGIN], ids[END])

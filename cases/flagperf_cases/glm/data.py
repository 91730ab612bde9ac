"""The samples of a run: loaded, dealt out as tensors, and checked before anything starts.

Importable without torch: `check_files` is called before any process of the run starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.files import data_folder, described, read_lines
from flagperf_cases.glm.checkpoint import CHECKPOINT, check_checkpoint
from flagperf_cases.glm.pieces import (
    NUM_FRAME,
    NUM_MARKS,
    SPECIAL,
    Samples,
    WordPieces,
    cut_samples,
    swap_passages,
)
from flagperf_cases.glm.record import (
    GET_RECORD,
    NO_HDF5,
    Record,
    entity_texts,
    evaluation_clozes,
    query_text,
    read_records,
    training_clozes,
)
from flagperf_cases.glm.stories import LONGEST, WORDS, made_up
from flagperf_cases.rows import Batch, MicroBatch, TrainingRows, step_loader
from flagperf_cases.values import check_made_up_rows, check_shared

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

VOCABULARY = "bert-base-uncased/vocab.txt"
TRAIN, VALIDATION = "ReCoRD/train.jsonl", "ReCoRD/val.jsonl"


def load_samples(config: Any, data_dir: Path | None) -> tuple[Samples, Samples]:
    """The samples to train on and those to evaluate, alike on every rank."""
    data, length = config.data, config.model.sequence
    records: list[Iterable[Record]]
    if data.source == "synthetic":
        pieces = WordPieces.of_stories()
        records = [made_up("train", data.rows), made_up("eval", data.eval_rows)]
        names = ["synthetic train", "synthetic eval"]
    else:
        assert data_dir is not None, "check_files has asked for --data-dir"
        pieces = WordPieces.of_file(data_dir / VOCABULARY)
        records = [read_records(data_dir / name) for name in (TRAIN, VALIDATION)]
        names = [TRAIN, VALIDATION]
    clozes = [
        islice(training_clozes(records[0]), data.rows or None),
        islice(evaluation_clozes(records[1]), data.eval_rows or None),
    ]
    train, validation = (cut_samples(name, each, pieces, length) for name, each in zip(names, clozes, strict=True))
    return (swap_passages(train), swap_passages(validation)) if data.swap_passages else (train, validation)


# --- tensors --------------------------------------------------------------------------------------------------------


def training_loader(samples: Samples, rows: TrainingRows, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, samples), rows, num_workers)


def _batch(samples: Samples, micro: MicroBatch) -> Batch:
    """Samples with fewer candidates than another one repeat their first, which is then left out of the loss."""
    import torch

    counts = [len(samples.samples[row].candidates) for row in micro.rows]
    widest = max(counts)
    pairs = [
        (row, index if index < count else 0)
        for row, count in zip(micro.rows, counts, strict=True)
        for index in range(widest)
    ]
    inputs, lengths = sequences(samples, pairs)
    is_real = [
        index < count and weight for count, weight in zip(counts, micro.weights, strict=True) for index in range(widest)
    ]
    num_tokens = sum(length for length, real in zip(lengths, is_real, strict=True) if real)
    return {
        "inputs": inputs,
        "candidates": torch.arange(widest) < torch.tensor(counts).unsqueeze(-1),
        "weights": torch.tensor(micro.weights, dtype=torch.float32),
        "scale": micro.scale,
        "samples": micro.real_rows,
        "tokens": num_tokens,
        "padded_tokens": len(pairs) * samples.length - num_tokens,
    }


def sequences(samples: Samples, pairs: Sequence[tuple[int, int]]) -> tuple[dict[str, torch.Tensor], list[int]]:
    """What the model takes, for pairs of row and candidate, and the length of each sequence without padding."""
    import torch

    filled = [samples.filled(row, candidate) for row, candidate in pairs]
    shape, longest = (len(filled), samples.length), max(len(each.targets) for each in filled)
    tokens = torch.full(shape, samples.pieces.pad)
    positions, blocks = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    targets = torch.zeros(len(filled), longest, dtype=torch.long)
    target_mask = torch.zeros(len(filled), longest)
    count = torch.arange(samples.length)
    for index, each in enumerate(filled):
        context, length, num_targets = each.context, len(each.tokens), len(each.targets)
        tokens[index, :length] = torch.tensor(each.tokens)
        positions[index, :context] = count[:context]
        positions[index, context:length] = each.blank
        blocks[index, context:length] = count[1 : num_targets + 1]
        targets[index, :num_targets] = torch.tensor(each.targets)
        target_mask[index, :num_targets] = 1
    contexts = torch.tensor([each.context for each in filled])
    # Beyond an answer's end any position will do: its target is masked.
    answer_at = (contexts.unsqueeze(-1) + torch.arange(longest)).clamp(max=samples.length - 1)
    inputs = {
        "tokens": tokens, "positions": positions, "blocks": blocks, "context": contexts, "answer_at": answer_at,
        "targets": targets, "target_mask": target_mask,
    }  # fmt: skip
    return inputs, [len(each.tokens) for each in filled]


# --- before the run -------------------------------------------------------------------------------------------------

GET_VOCABULARY = (
    "download vocab.txt of https://huggingface.co/bert-base-uncased into the folder bert-base-uncased of --data-dir"
)


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads, each looked through. Raises BadInput for the first fault."""
    _check_values(values)
    real_data, checkpoint = values["data"]["source"] == "record", values["model"]["checkpoint"]
    if not real_data and not checkpoint:
        return []
    folder = data_folder(data_dir, f"ReCoRD/, {Path(VOCABULARY).parent}/ and {CHECKPOINT}/")
    files: list[Path] = []
    if real_data:
        _refuse_arrays(folder)
        vocabulary = _checked_vocabulary(folder / VOCABULARY, values["model"]["vocabulary"])
        files += [_checked_records(folder, name, vocabulary, values) for name in (TRAIN, VALIDATION)]
        files.append(vocabulary)
    if checkpoint:
        files += check_checkpoint(folder / CHECKPOINT, values["model"])
    return [described(path, folder) for path in files]


def _check_values(values: dict[str, Any]) -> None:
    model, training = values["model"], values["training"]
    check_shared(model, "width", "heads")
    check_made_up_rows(values["data"])
    if training["schedule_steps"] < training["accumulate"]:
        raise BadInput(
            f"training.schedule_steps={training['schedule_steps']} micro-batches are less than one step of "
            f"training.accumulate={training['accumulate']}; raise the first"
        )
    if values["data"]["source"] == "synthetic":
        _check_stories(model)


def _check_stories(model: dict[str, Any]) -> None:
    num_pieces = len(SPECIAL) + len(WORDS) + NUM_MARKS
    for key, needed in (("vocabulary", num_pieces), ("sequence", LONGEST)):
        if model[key] < needed:
            raise BadInput(f"data.source=synthetic needs model.{key}={needed}, and it is {model[key]}; raise it")


def _refuse_arrays(folder: Path) -> None:
    """Before anything else: whoever has the original's files has neither text nor vocabulary."""
    missing = [folder / name for name in (TRAIN, VALIDATION) if not (folder / name).exists()]
    if missing and any(folder.glob("**/*.hdf5")):
        raise BadInput(f"{missing[0]} does not exist, and {NO_HDF5}; {GET_RECORD}")


def _checked_records(folder: Path, name: str, vocabulary: Path, values: dict[str, Any]) -> Path:
    path, length = folder / name, values["model"]["sequence"]
    long = [record for record in read_records(path) if _may_be_too_long(record, length)]
    if long:
        cut_samples(str(path), evaluation_clozes(long), WordPieces.of_file(vocabulary), length)
    return path


def _may_be_too_long(record: Record, length: int) -> bool:
    """A piece takes a byte at least, so that hardly any text has to be cut to know that it fits."""
    longest = max(len(text.encode()) for text in entity_texts(record))
    return any(NUM_FRAME + len(query_text(each).encode()) + longest > length for each in record.qas)


def _checked_vocabulary(path: Path, size: int) -> Path:
    words = read_lines(path, GET_VOCABULARY)
    if words[0] != SPECIAL[0] or not set(SPECIAL) <= set(words):
        raise BadInput(
            f"{path} is not BERT's vocabulary: that begins with [PAD] and has {', '.join(SPECIAL)}; {GET_VOCABULARY}"
        )
    if len(words) + NUM_MARKS > size:
        raise BadInput(
            f"{path} has {len(words)} words and GLM {NUM_MARKS} marks, more than model.vocabulary={size}; "
            f"set that to {len(words) + NUM_MARKS} or more"
        )
    return path

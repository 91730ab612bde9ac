"""The samples of a run, SuperGLUE's ReCoRD from disk or synthetic stories, and the batches made of them.

Importable without torch, because preflight.py reads the files by these functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagperf_cases.glm.record_dataset import Record, evaluation_clozes, read_records, training_clozes
from flagperf_cases.glm.samples import Samples, make_samples, swap_passages
from flagperf_cases.glm.synthetic import synthetic_records
from flagperf_cases.glm.tokenizer import WordPieceTokenizer
from flagperf_cases.sampler import Batch, MicroBatch, TrainingSampler, step_loader

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader

VOCABULARY = "bert-base-uncased/vocab.txt"
TRAIN, VALIDATION = "ReCoRD/train.jsonl", "ReCoRD/val.jsonl"


def load_data(config: Any, data_dir: Path | None) -> tuple[Samples, Samples]:
    """The training and the evaluation samples, the same on every rank."""
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


# --- tensors --------------------------------------------------------------------------------------------------------


def training_loader(samples: Samples, sampler: TrainingSampler, num_workers: int) -> DataLoader[Any]:
    return step_loader(partial(_batch, samples), sampler, num_workers)


def _batch(samples: Samples, micro: MicroBatch) -> Batch:
    """A sample with fewer candidates than another one repeats its first, which is masked out of the loss."""
    import torch

    counts = [len(samples.samples[row].candidates) for row in micro.rows]
    widest = max(counts)
    pairs = [
        (row, index if index < count else 0)
        for row, count in zip(micro.rows, counts, strict=True)
        for index in range(widest)
    ]
    inputs, lengths = make_inputs(samples, pairs)
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


def make_inputs(samples: Samples, pairs: Sequence[tuple[int, int]]) -> tuple[dict[str, torch.Tensor], list[int]]:
    """The model's inputs for pairs of row and candidate, and the length of each sequence without padding."""
    import torch

    filled = [samples.fill_blank(row, candidate) for row, candidate in pairs]
    shape, longest = (len(filled), samples.length), max(len(each.targets) for each in filled)
    tokens = torch.full(shape, samples.tokenizer.pad)
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
    # Positions after an answer's end do not matter, because their targets are masked.
    answer_at = (contexts.unsqueeze(-1) + torch.arange(longest)).clamp(max=samples.length - 1)
    inputs = {
        "tokens": tokens,
        "positions": positions,
        "blocks": blocks,
        "context": contexts,
        "answer_at": answer_at,
        "targets": targets,
        "target_mask": target_mask,
    }
    return inputs, [len(each.tokens) for each in filled]

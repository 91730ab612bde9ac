"""check_files: validates values and files before any process of the run starts. Importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.checkpoint import check_checkpoint
from flagperf_cases.aquila_33b.data import load_data, texts_file
from flagperf_cases.aquila_33b.tokenizer import tokenizer_files
from flagperf_cases.data_files import data_folder, describe_file
from flagperf_cases.decoder.layout import check_layout, layout_of
from flagperf_cases.decoder.shape import shape_of

CONTENTS = "weights, tokenizer and texts"


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads, each of them validated. Raises BadInput for the first problem."""
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
    """Raises BadInput if model and batches cannot be spread as asked. Reads no file."""
    shape, layout = shape_of(values["model"]), layout_of(values["parallel"])
    if layout.pp != 1 or layout.dp != 1:
        raise BadInput(
            f"aquila_33b supports tensor parallelism only; TP{layout.tp}PP{layout.pp}DP{layout.dp} was asked for: "
            f"use --parallel TP{layout.world_size}PP1DP1"
        )
    check_layout(shape, layout, 1)
    _check_padding(values, layout.tp)


def _check_padding(values: dict[str, Any], tp: int) -> None:
    inference, sequence = values["inference"], values["model"]["sequence"]
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

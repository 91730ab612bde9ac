"""check_files: validates values and files before any process of the run starts. Importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.data_files import data_folder, describe_file
from flagperf_cases.decoder.layout import check_layout, layout_of
from flagperf_cases.decoder.shape import shape_of
from flagperf_cases.llama2_70b.data import TOKENIZER, check_tokens, load_data, text_files

NUM_CHECKED_TOKENS = 1 << 20
"""Tokens that are compared with the vocabulary before a run; the others are compared when they are used."""


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads, each of them validated. Raises BadInput for the first problem."""
    shape = shape_of(values["model"])
    check_layout(shape, layout_of(values["parallel"]), values["training"]["accumulate"])
    if values["data"]["source"] == "made_up":
        if values["data"]["tokens"] <= shape.sequence:
            raise BadInput(
                f"data.source=made_up needs more tokens than model.sequence={shape.sequence}, and data.tokens is "
                f"{values['data']['tokens']}; raise it"
            )
        return []
    samples = load_data(values, data_dir)
    first = samples.stream.part(0, min(len(samples.stream), NUM_CHECKED_TOKENS))
    check_tokens(values["data"]["source"], first, shape.vocabulary)
    folder = data_folder(data_dir, "tokens")
    return [describe_file(path, folder) for path in _files(values["data"], folder)]


def _files(data: dict[str, Any], folder: Path) -> list[Path]:
    if data["source"] == "text":
        return [*text_files(folder), folder / TOKENIZER]
    return [folder / (data["prefix"] + suffix) for suffix in (".bin", ".idx")]

"""check_files: validates values and files before any process of the run starts. Importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf_cases.data_files import data_folder, describe_file
from flagperf_cases.distilbert.checkpoint import CHECKPOINT, check_checkpoint, check_vocabulary
from flagperf_cases.distilbert.data import read_tsv
from flagperf_cases.value_checks import check_divisible, check_synthetic_rows


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    """The files that a run with these values reads, each of them validated. Raises BadInput for the first problem."""
    check_divisible(values["model"], "width", "heads")
    check_synthetic_rows(values["data"])
    real_data, model = values["data"]["source"] == "sst2", values["model"]
    if not real_data and not model["checkpoint"]:
        return []
    folder = data_folder(data_dir, f"SST-2/ and {CHECKPOINT}/")
    files: list[Path] = []
    if real_data:
        files += [_checked_tsv(folder / "SST-2" / name) for name in ("train.tsv", "dev.tsv")]
        files.append(check_vocabulary(folder / CHECKPOINT / "vocab.txt", model))
    if model["checkpoint"]:
        files += check_checkpoint(folder / CHECKPOINT, model)
    return [describe_file(path, folder) for path in files]


def _checked_tsv(path: Path) -> Path:
    read_tsv(path)
    return path

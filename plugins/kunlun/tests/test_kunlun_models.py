"""models.toml against the table of peaks that it was written from, where that lies beside this repository."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from flagperf.api import find_model
from flagperf_kunlun.device import KunlunBackend

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
TABLE = SHARED / "facts" / "peaks.csv"
ROWS = {
    "fp32_vector": ("fp32", 1e12), "tf32_tensor_dense": ("tf32", 1e12), "fp16_tensor_dense": ("fp16", 1e12),
    "bf16_tensor_dense": ("bf16", 1e12), "memory_bandwidth": ("memory_bandwidth", 1e9), "tdp": ("tdp", 1.0),
}  # fmt: skip


def table_rows() -> list[dict[str, str]]:
    if not TABLE.is_file():
        message = f"no table of peaks at {TABLE}"
        if os.environ.get("CI") == "true" and SHARED.is_dir():
            pytest.fail(message)
        pytest.skip(message)
    with TABLE.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["vendor"] == "kunlun"]


def test_peaks_are_those_of_the_table() -> None:
    stated = {}
    for row in table_rows():
        if row["metric"] in ROWS and row["value"] not in ("n/a", "unsupported"):
            name, scale = ROWS[row["metric"]]
            value = pytest.approx(float(row["value"]) * scale)
            stated[row["model"], name] = (value, row["source"], row["confidence"])
    peaks = {(peak.model, peak.row): (peak.value, peak.source, peak.confidence) for peak in KunlunBackend().peaks()}
    assert peaks == stated


def test_name_patterns_are_those_of_the_table() -> None:
    stated = {row["model"]: row["value"] for row in table_rows() if row["metric"] == "name_pattern"}
    patterns = {model.name: model.name_pattern for model in KunlunBackend().models()}
    assert stated.items() <= patterns.items()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("R200", "R200"),
        ("R300", "R300"),
        ("P800 OAM", "P800-OAM"),
        ("P800 PCIe", "P800-PCIe"),
        ("P800", None),
        ("R200-VF-5G", None),
        ("R200-PF", None),
        ("K200", None),
    ],
)
def test_the_tools_name_tells_the_model_and_a_slice_has_none(name: str, model: str | None) -> None:
    found = find_model(KunlunBackend().models(), [name], "3684")
    assert (found.name if found else None) == model

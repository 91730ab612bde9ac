"""models.toml of the four adapters against the table of peaks that they were written from."""

from __future__ import annotations

import csv

import pytest

from flagperf.api import PRECISIONS, DeviceBackend
from flagperf.plugins.installed import load_plugins
from flagperf.testing import shared_file

pytestmark = pytest.mark.shared("facts/peaks.csv")

ROWS = {
    "fp32_vector": ("fp32", "e12"),
    "fp32_matrix": ("fp32", "e12"),  # below the vector's in the table: it counts where a card has both
    "tf32_tensor_dense": ("tf32", "e12"),
    "fp16_tensor_dense": ("fp16", "e12"),
    "bf16_tensor_dense": ("bf16", "e12"),
    "fp64_tensor": ("fp64", "e12"),
    "fp8_tensor_dense": ("fp8", "e12"),
    "int8_tensor_dense": ("int8", "e12"),
    "memory_bandwidth": ("memory_bandwidth", "e9"),
    "tdp": ("tdp", ""),
}
"""Those of matrix units, where a card has them: vector units do not bound a product."""

LINKS = {"A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM", "R300"}
"""Of these the table gives all links of a card in both directions. Bridges between two cards, and sums over several
cards, are left out."""


@pytest.fixture(params=["nvidia", "metax", "hygon", "kunlun"])
def backend(request: pytest.FixtureRequest) -> DeviceBackend:
    return load_plugins().device_backend(request.param)


@pytest.fixture
def table(backend: DeviceBackend) -> list[dict[str, str]]:
    with shared_file(__file__, "facts/peaks.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["vendor"] == backend.vendor]


def test_peaks_are_exactly_those_of_the_table(backend: DeviceBackend, table: list[dict[str, str]]) -> None:
    published = {
        (row["model"], ROWS[row["metric"]][0]): (
            float(row["value"] + ROWS[row["metric"]][1]),
            row["source"],
            row["confidence"],
        )
        for row in table
        if row["metric"] in ROWS and row["value"] not in ("n/a", "unsupported")
    }
    published |= {
        (row["model"], "link_bandwidth"): (
            float(row["value"]) / 2 * 1e9,
            f"{row['source']}; half of the sum of both directions",
            row["confidence"],
        )
        for row in table
        if row["metric"] == "link_bandwidth" and row["model"] in LINKS
    }
    assert published
    assert {(peak.model, peak.row): (peak.value, peak.source, peak.confidence) for peak in backend.peaks()} == published


def test_what_a_card_cannot_compute_is_what_the_table_calls_unsupported(
    backend: DeviceBackend, table: list[dict[str, str]]
) -> None:
    published = {
        (row["model"], ROWS[row["metric"]][0]): row["source"]
        for row in table
        if row["value"] == "unsupported" and row["metric"] in ROWS and ROWS[row["metric"]][0] in PRECISIONS
    }
    stated = {(each.name, row): source for each in backend.models() for row, source in each.unsupported.items()}
    assert stated == published


def test_name_patterns_are_those_of_the_table(backend: DeviceBackend, table: list[dict[str, str]]) -> None:
    published = {row["model"]: row["value"] for row in table if row["metric"] == "name_pattern"}
    assert published.items() <= {model.name: model.name_pattern for model in backend.models()}.items()

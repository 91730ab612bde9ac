"""The published results in the manifests of base cases are those of the table that they were converted from."""

from __future__ import annotations

import csv

import pytest
from case_harness import CaseHarness

from flagperf.testing import shared_file

pytestmark = pytest.mark.shared("facts/base_reference_results.csv")

PUBLISHED = {
    "gemm": {"gemm_throughput"},
    "memory_bandwidth": {"memory_copy_bandwidth"},
    "memory_capacity": {"memory_capacity"},
    "host_to_device": {
        "h2d_bandwidth_pageable_8_devices",
        "h2d_bandwidth_pinned_1_device",
        "h2d_bandwidth_pinned_multi_device",
    },
}
DOUBTFUL = "base/benchmarks/main_memory-capacity/metax/C550/README.md"
"""65.25 without a unit, of 64 GiB."""
FACTORS = {
    "allreduce_busbw_x2_n8": 2,
    "allreduce_busbw_x2_n16": 2,
    "allreduce_busbw_factor_n8_on_16_ranks": (7 / 8) / (15 / 16),
    "p2p_bandwidth_unidirectional_x2": 2,
    "p2p_bandwidth_unidirectional": 1,
}
"""Convention of the table -> what its figures are over those of one direction and the true number of ranks."""


@pytest.fixture
def published() -> list[dict[str, str]]:
    with shared_file(__file__, "facts/base_reference_results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("case", PUBLISHED)
def test_every_published_result_is_there_once_in_the_unit_of_its_figure(
    published: list[dict[str, str]], case: str
) -> None:
    manifest = CaseHarness(case).manifest()
    units = {figure.name: figure.unit for figure in manifest.figures}
    expected = [
        (row["source_path"], row["unit"], float(row["value"]), row["kind"])
        for row in published
        if row["metric"] in PUBLISHED[case] and row["unit"] != "GB" and row["source_path"] != DOUBTFUL
    ]
    found = [
        (reference.source, units[name], value, "toolkit" if "toolkit" in reference.overrides else "torch")
        for reference in manifest.references
        for name, value in reference.values.items()
    ]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("case", ["collectives", "peer_to_peer"])
def test_published_results_of_links_are_in_one_convention(published: list[dict[str, str]], case: str) -> None:
    rows = [row for row in published if row["metric"] in FACTORS]
    given = {row["source_path"]: (float(row["value"]), FACTORS[row["metric"]]) for row in rows}
    references = CaseHarness(case).manifest().references
    assert len(references) == 4
    for reference in references:
        value, factor = given[reference.source]
        assert next(iter(reference.values.values())) == pytest.approx(value / factor, rel=5e-4)
        assert str(value) in reference.overrides or factor == 1

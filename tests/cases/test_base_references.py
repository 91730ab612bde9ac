"""The published results in the manifests of base cases are those of the published table, in the unit of the figure."""

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


@pytest.mark.parametrize("case", PUBLISHED)
def test_every_published_result_is_there_once_in_the_unit_of_its_figure(case: str) -> None:
    manifest = CaseHarness(case).manifest()
    units = {figure.name: figure.unit for figure in manifest.figures}
    with shared_file(__file__, "facts/base_reference_results.csv").open() as table:
        expected = [
            (row["source_path"], row["unit"], float(row["value"]), row["kind"])
            for row in csv.DictReader(table)
            if row["metric"] in PUBLISHED[case] and row["unit"] != "GB" and row["source_path"] != DOUBTFUL
        ]
    found = [
        (reference.source, units[name], value, "toolkit" if "toolkit" in reference.overrides else "torch")
        for reference in manifest.references
        for name, value in reference.values.items()
    ]
    assert sorted(found) == sorted(expected)

"""Published results of links against the table that they were converted from."""

from __future__ import annotations

import csv

import pytest
from case_harness import CaseHarness

from flagperf.testing import shared_file

pytestmark = pytest.mark.shared("facts/base_reference_results.csv")

FACTORS = {
    "allreduce_busbw_x2_n8": 2,
    "allreduce_busbw_x2_n16": 2,
    "allreduce_busbw_factor_n8_on_16_ranks": (7 / 8) / (15 / 16),
    "p2p_bandwidth_unidirectional_x2": 2,
    "p2p_bandwidth_unidirectional": 1,
}
"""Convention of the table -> what its figures are over those of one direction and the true number of ranks."""


@pytest.mark.parametrize("case", ["collectives", "peer_to_peer"])
def test_published_results_are_in_one_convention(case: str) -> None:
    with shared_file(__file__, "facts/base_reference_results.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] in FACTORS]
    published = {row["source_path"]: (float(row["value"]), FACTORS[row["metric"]]) for row in rows}
    references = CaseHarness(case).manifest().references
    assert len(references) == 4
    for reference in references:
        value, factor = published[reference.source]
        assert next(iter(reference.values.values())) == pytest.approx(value / factor, rel=5e-4)
        assert str(value) in reference.overrides or factor == 1

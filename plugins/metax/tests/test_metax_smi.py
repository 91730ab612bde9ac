"""What the tables of metax_outputs.py do not say of the parsers."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from metax_outputs import DMON

from flagperf.testing.mutations import check_figures, with_columns
from flagperf_metax.smi import parse_dmon


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_columns_may_be_added_and_stand_in_any_order(random: Random) -> None:
    assert check_figures(parse_dmon, DMON, with_columns(DMON, ",", 0, random)) == parse_dmon(DMON)

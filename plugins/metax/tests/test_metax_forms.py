"""Outputs of mx-smi that nobody has seen yet: a right figure, or none with a reason."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metax_builders import SAID, transcript

from flagperf.errors import UnknownLayout
from flagperf.testing.mutations import Parse, check_figures, check_forms, check_quotes, with_columns
from flagperf_metax.smi import parse_board_power, parse_dmon, parse_json, parse_list, parse_memory, parse_table

RANDOM = st.randoms(use_true_random=False)


@pytest.mark.parametrize("name", SAID)
def test_no_form_gives_a_wrong_figure(name: str) -> None:
    check_forms(SAID[name][0], transcript(name))


@settings(max_examples=50, deadline=None)
@given(RANDOM)
def test_columns_may_be_added_and_stand_in_any_order(random: Random) -> None:
    text = transcript("dmon_c500")
    assert check_figures(parse_dmon, text, with_columns(text, ",", 0, random)) == parse_dmon(text)


def test_a_row_does_not_go_on_behind_a_rule() -> None:
    """As where the second line of one card and the first of the next are missing."""
    lines = transcript("table_a0").splitlines(keepends=True)
    with pytest.raises(UnknownLayout, match="not whole; the line: '0       MXC500"):
        parse_table("".join(lines[:8] + lines[9:10] + lines[11:]))


@pytest.mark.parametrize("name", ["sgpu_id", "vram_quota", "compute_quota"])
def test_a_slice_without_its_numbers_is_refused(name: str) -> None:
    text = re.sub(rf'("{name}": )[0-9]+', r"\1-1", transcript("json_sgpu"))
    assert text != transcript("json_sgpu")
    with pytest.raises(UnknownLayout, match=name):
        parse_json(text)


@pytest.mark.parametrize(
    ("parse", "name", "was", "becomes", "quoted"),
    [
        (parse_memory, "show_memory", "End of Log", "ERROR: card 1 is gone", "ERROR: card 1 is gone"),
        (parse_board_power, "show_board_power", "Timestamp", "Zeit     ", "Zeit"),
        (parse_list, "list", "Available (UUID", "Available [UUID", "Available [UUID"),
        (parse_table, "table_b", "GPU-Util", "GPU-Load", "GPU-Load"),
    ],
)
def test_the_line_that_differs_is_quoted(parse: Parse, name: str, was: str, becomes: str, quoted: str) -> None:
    text = transcript(name)
    assert was in text
    check_quotes(parse, text.replace(was, becomes, 1), quoted)

"""What the tables of kunlun_outputs.py do not say of the parsers."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kunlun_outputs import MACHINE, MIB, XRE4

from flagperf.testing import shared_file
from flagperf.testing.mutations import check_figures, with_columns
from flagperf_kunlun.smi import parse_machine, parse_table

RANDOM = st.randoms(use_true_random=False)


@settings(max_examples=100, deadline=None)
@given(RANDOM)
def test_columns_without_a_header_are_right_or_refused_in_any_order(random: Random) -> None:
    text = MACHINE.replace("P800 OAM", "P800")
    lines = [line.split(" ") for line in text.splitlines()]
    named, other = random.choice((0, 3, 20, 21)), random.choice(range(23))  # nothing tells plain numbers apart
    for words in lines:
        words[named], words[other] = words[other], words[named]
    check_figures(parse_machine, text, "\n".join(" ".join(words) for words in lines) + "\n")


@settings(max_examples=50, deadline=None)
@given(RANDOM)
def test_columns_of_xre_4_may_be_added_and_stand_in_any_order(random: Random) -> None:
    head, rule, *rows = XRE4.splitlines()[4:8]
    cells = "\n".join(line.strip("| ") for line in (head, *rows))
    moved = with_columns(cells, "|", 0, random).splitlines()
    lines = [*XRE4.splitlines()[:4], f"|{moved[0]}|", rule, *(f"|{row}|" for row in moved[1:]), rule]
    assert check_figures(parse_table, XRE4, "\n".join(lines) + "\n") == parse_table(XRE4)


@pytest.mark.shared("transcripts/kunlun/p800_m_8x_one_busy_generated.txt")
def test_captured_machine_lines_are_read_once_their_made_up_addresses_are_repaired() -> None:
    """The lines were generated with bus numbers of three digits; all else in them is as the tool prints it."""
    text = shared_file(__file__, "transcripts/kunlun/p800_m_8x_one_busy_generated.txt").read_text()
    readings = parse_machine(re.sub(r"^00000000:0([0-9A-F]{2}):", r"00000000:\1:", text, flags=re.MULTILINE))
    assert [(each.properties["index"], each.used_bytes) for each in readings] == [
        (str(index), 88986 * MIB if index == 2 else 0) for index in range(8)
    ]
    assert {(each.total_bytes, each.power_watts, each.properties["name"]) for each in readings} == {
        (98304 * MIB, 86.0, "P800 OAM")
    }

"""Outputs of xpu-smi that nobody has seen yet: a right figure, or none with a reason."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kunlun_builders import transcript
from kunlun_readings import READ, Parser

from flagperf.testing.mutations import check_figures, check_forms, check_quotes, with_columns
from flagperf_kunlun.smi import parse_machine, parse_query, parse_table

KNOWN = [(parse, name) for name, parse, _ in READ]
RANDOM = st.randoms(use_true_random=False)


@pytest.mark.parametrize(("parse", "name"), KNOWN)
def test_no_form_gives_a_wrong_figure(parse: Parser, name: str) -> None:
    check_forms(parse, transcript(name))


@settings(max_examples=100, deadline=None)
@given(RANDOM)
def test_columns_without_a_header_are_right_or_refused_in_any_order(random: Random) -> None:
    text = transcript("machine_p800").replace("P800 OAM", "P800")
    lines = [line.split(" ") for line in text.splitlines()]
    named, other = random.choice((0, 3, 20, 21)), random.choice(range(23))  # nothing tells plain numbers apart
    for words in lines:
        words[named], words[other] = words[other], words[named]
    check_figures(parse_machine, text, "\n".join(" ".join(words) for words in lines) + "\n")


@settings(max_examples=50, deadline=None)
@given(RANDOM)
def test_columns_of_xre_4_may_be_added_and_stand_in_any_order(random: Random) -> None:
    text = transcript("table_xre4_14_columns")
    head, rule, *rows = text.splitlines()[4:8]
    cells = "\n".join(line.strip("| ") for line in (head, *rows))
    moved = with_columns(cells, "|", 0, random).splitlines()
    lines = [*text.splitlines()[:4], f"|{moved[0]}|", rule, *(f"|{row}|" for row in moved[1:]), rule]
    assert check_figures(parse_table, text, "\n".join(lines) + "\n") == parse_table(text)


@pytest.mark.parametrize("line", ["Driver Version: ", "Driver Version:", "Version: 4.0", " Version: "])
def test_a_version_that_is_not_told_takes_no_card_away(line: str) -> None:
    text = transcript("table_xre4_8_columns").replace("Driver Version: 4.0.9", line)
    assert [each.used_bytes for each in parse_table(text)] == [504 << 20, 0, None]
    assert all("driver" not in each.properties for each in parse_table(text))


@pytest.mark.parametrize(
    ("parse", "name", "was", "becomes", "quoted"),
    [
        (parse_machine, "machine_p800", " 2051 ", " 98305 ", "98305 98304"),
        (parse_machine, "machine_p800", " 98304 17 ", " 98304 117 ", "98304 117"),
        (parse_machine, "machine_p800", "00000000:1A", "[ERROR] no card\n00000000:1A", "[ERROR] no card"),
        (parse_table, "table_p800", "XPU-Util", "XPU-Load", "XPU-Load"),
        (parse_table, "table_p800", "112W / 400W", "112W of 400W", "112W of 400W"),
        (parse_table, "table_xre4_8_columns", "|    12 % |", "|", "504 / 8064 MB"),
        (parse_query, "query_p800", "XPU 00000000:B4:00.0\n", "", "P800 OAM"),
    ],
)
def test_the_line_that_differs_is_quoted(parse: Parser, name: str, was: str, becomes: str, quoted: str) -> None:
    text = transcript(name)
    assert was in text
    check_quotes(parse, text.replace(was, becomes, 1), quoted)

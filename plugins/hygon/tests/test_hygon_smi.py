"""What the tables of hygon_outputs.py do not say of the parsers."""

from __future__ import annotations

from random import Random

import pytest
from hygon_outputs import transcript
from hypothesis import given, settings
from hypothesis import strategies as st

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.testing import shared_file
from flagperf.testing.mutations import check_figures, with_columns
from flagperf_hygon.smi import driver_version, parse_table, plausible


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_columns_may_be_added_and_stand_in_any_order(random: Random) -> None:
    """The first one says which card it is."""
    text = transcript("table_hcu_dec_enc")
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("HCU"))
    end = next(at for at in range(start, len(lines)) if lines[at].startswith("="))
    rows = [line.split(maxsplit=1) for line in lines[start:end]]
    moved = with_columns("\n".join("\t".join(cells.split()) for _, cells in rows), "\t", 0, random).splitlines()
    table = [f"{number} {row}" for (number, _), row in zip(rows, moved, strict=True)]
    assert check_figures(parse_table, text, "\n".join([*lines[:start], *table, *lines[end:]])) == parse_table(text)


def test_power_is_kept_unless_a_busy_card_seems_to_draw_less_than_an_idle_one() -> None:
    for kept in ((None, 8.0), (0.0, 8.0), (12.0, 22.0)):
        assert plausible(Reading("0", None, None, *kept)).power_watts == kept[1]
    assert plausible(Reading("0", None, None, 50.0, 8.0)).power_watts is None


def test_the_driver_version_is_read_from_its_line_alone() -> None:
    assert driver_version("\n====\nDriver Version: 6.3.32-V1.6.0\n====\n") == "6.3.32-V1.6.0"
    for text in ("", "Driver Version: 6.3", "Driver Version:\n", "bash: hy-smi: command not found...\n"):
        with pytest.raises(UnknownLayout):
            driver_version(text)


@pytest.mark.shared("transcripts/hygon/version_lines.txt")
def test_the_captured_driver_version_is_read() -> None:
    text = shared_file(__file__, "transcripts/hygon/version_lines.txt").read_text()
    assert driver_version(text) == "6.3.32-V1.6.0"

from __future__ import annotations

import pytest

from flagperf.report.terminal import fitted

TABLE = [
    ["VENDOR", "STATE", "EVIDENCE OR REASON"],
    ["acme", "absent", "looked for PCI ffff, /dev/acme0 and the kernel module acme"],
    ["cpu", "present", "2 cores"],
]


def test_a_table_that_fits_has_a_line_for_each_row() -> None:
    assert list(fitted(TABLE, 80)) == [
        "VENDOR  STATE    EVIDENCE OR REASON",
        "acme    absent   looked for PCI ffff, /dev/acme0 and the kernel module acme",
        "cpu     present  2 cores",
    ]


def test_a_wide_last_column_is_folded_between_words() -> None:
    assert list(fitted(TABLE, 50)) == [
        "VENDOR  STATE    EVIDENCE OR REASON",
        "acme    absent   looked for PCI ffff, /dev/acme0",
        "                 and the kernel module acme",
        "cpu     present  2 cores",
    ]


def test_where_folding_is_not_enough_a_row_is_a_block() -> None:
    wide = [["RUN", "VENDOR"], ["20260101T000000Z-distilbert-metax-1x8-abc123", "metax (simulated)"]]
    assert list(fitted(wide, 50)) == [
        "RUN", "    VENDOR", "20260101T000000Z-distilbert-metax-1x8-abc123", "    metax (simulated)",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_longer_than_the_terminal_and_no_word_is_cut(width: int) -> None:
    lines = list(fitted(TABLE, width))
    assert max(map(len, lines)) <= width
    assert {word for line in lines for word in line.split()} == {
        w for row in TABLE for cell in row for w in cell.split()
    }

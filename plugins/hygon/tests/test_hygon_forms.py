"""Outputs of hy-smi that nobody has seen yet: a right figure, or none with a reason."""

from __future__ import annotations

from random import Random

import pytest
from hygon_builders import transcript
from hypothesis import given, settings
from hypothesis import strategies as st

from flagperf.testing.mutations import Parse, check_figures, check_forms, check_quotes, with_columns
from flagperf_hygon.smi import parse_csv, parse_json, parse_table, parse_text

KNOWN: list[tuple[Parse, str]] = [
    *((parse_json, f"json_{name}") for name in ("showmeminfo_mib", "showmeminfo_b", "showuse_hcu", "showpower")),
    (parse_csv, "csv_dcu_from_1"),
    *((parse_text, f"text_{name}") for name in ("hcu_tabs", "dcu_spaces_driver")),
    *((parse_table, f"table_{name}") for name in ("dcu", "hcu_dec_enc")),
]
RANDOM = st.randoms(use_true_random=False)


@pytest.mark.parametrize(("parse", "name"), KNOWN)
def test_no_form_gives_a_wrong_figure(parse: Parse, name: str) -> None:
    check_forms(parse, transcript(name))


@settings(max_examples=50, deadline=None)
@given(RANDOM)
def test_columns_may_be_added_and_stand_in_any_order(random: Random) -> None:
    """The first one says which card it is."""
    text = transcript("table_hcu_dec_enc")
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("HCU"))
    end = next(at for at in range(start, len(lines)) if lines[at].startswith("="))
    rows = ["\t".join(line.split()) for line in lines[start:end]]
    first = [row.partition("\t")[0] for row in rows]
    moved = with_columns("\n".join(row.partition("\t")[2] for row in rows), "\t", 0, random).splitlines()
    table = [f"{number} {row}" for number, row in zip(first, moved, strict=True)]
    assert check_figures(parse_table, text, "\n".join([*lines[:start], *table, *lines[end:]])) == parse_table(text)


@pytest.mark.parametrize(
    ("parse", "text", "quoted"),
    [
        (parse_json, '{"card0": {"GPU use (%)": "3", "vram Total Memory (B)": "68702699520"}}', "GPU use (%)"),
        (parse_json, '{"card0": {"VRAM Total Memory (B)": "68702699520"}}', "VRAM Total Memory (B)"),
        (parse_json, '{"card0": {"vram Total Memory (GiB)": "64"}}', "vram Total Memory (GiB)"),
        (parse_json, "====\nERROR: no driver\n====\n".replace("\\\n", "\n"), "ERROR: no driver"),
        (parse_text, "=====\nHCU[0] : HCU use (%): 1\nNot a card\n", "Not a card"),
        (parse_table, transcript("amd_table"), "ROCm System Management Interface"),
    ],
)
def test_what_differs_is_quoted(parse: Parse, text: str, quoted: str) -> None:
    check_quotes(parse, text, quoted)

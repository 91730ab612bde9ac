"""Pages of recorded runs that measured rows, byte for byte. FLAGPERF_UPDATE_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

import pytest
from recorded_bundles import recorded_bundle
from report_parsing import LANGUAGES, tables

from flagperf.bundle.bundle import read_bundle
from flagperf_publish.pages.layouts import page

TESTS = Path(__file__).parents[1]
PAGES = ("gemm", "collectives", "operators", "operators_replayed")


def recorded_run(name):
    return read_bundle(recorded_bundle(name))


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_page_equals_the_golden_one(name, lang):
    path = TESTS / f"golden/{name}-{lang}.md"
    text = page([recorded_run(name)], lang)
    if os.environ.get("FLAGPERF_UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text.encode() == path.read_bytes()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(name, lang):
    found = tables(page([recorded_run(name)], lang))
    assert len(found) >= 3
    for table in found:
        assert {len(row) for row in table} == {len(table[0])}

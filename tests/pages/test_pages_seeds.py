"""Five published pages: what contradicts itself there, and what holds. They are not part of the repository."""

from __future__ import annotations

import pytest
from page_builders import known

from flagperf.bundle.imported import identity_of
from flagperf.testing import shared_file
from flagperf_publish.published.page_import import SaidOfPage, import_page
from flagperf_publish.published.page_lint import LintedPage, lint_page
from flagperf_publish.published.page_source import SourcePage, parse_page, read_page

SEEDS = {
    "glm": "000_994f27f11e79f6ad.txt",
    "aquila_33b": "001_0061c8db0cdda81d.txt",
    "llama2_70b": "002_312299226e04befb.txt",
    "llama2_7b_finetune": "003_2fd617781632c625.txt",
    "distilbert": "004_4ddb200ac1e5d1d9.txt",
}
pytestmark = pytest.mark.shared(*(f"seeds/{name}" for name in SEEDS.values()))


def seed(case: str) -> SourcePage:
    return read_page(shared_file(__file__, f"seeds/{SEEDS[case]}"))


def linted(case: str) -> LintedPage:
    return lint_page(seed(case), known())


def texts(page: LintedPage, rule: str) -> list[tuple[int, str]]:
    return [(finding.line, str(finding.message)) for finding in page.findings if finding.rule == rule]


EXPECTED = {
    "glm": {
        "vendor_differs": [6],
        "devices_differ": [32],
        "empty_cells": [46],
        "empty_facts": [11],
        "os_and_kernel_differ": [15],
        "ragged_row": [48],
    },
    "aquila_33b": {"duplicate_section": [41], "list_row_missing": [87], "empty_cells": [89]},
    "llama2_70b": {
        "default_differs": [32],
        "config_files_differ": [32],
        "list_row_missing": [53],
        "empty_cells": [55],
    },
    "llama2_7b_finetune": {
        "config_files_differ": [43],
        "dataset_differs": [52],
        "list_row_missing": [62],
        "empty_cells": [64],
        "target_missed": [64],
        "tf32_called_fp32": [64],
        "precision_differs": [65],
    },
    "distilbert": {
        "list_row_missing": [43],
        "target_missed": [46],
        "card_count": [48],
        "tf32_called_fp32": [45, 46, 47, 48],
    },
}


@pytest.mark.parametrize("case", SEEDS)
def test_every_finding_and_no_other(case: str) -> None:
    page = linted(case)
    found: dict[str, list[int]] = {}
    for each in page.findings:
        found.setdefault(each.rule, []).append(each.line)
    assert page.case == case
    assert found == EXPECTED[case]


def test_the_card_of_another_vendor() -> None:
    page = linted("glm")
    ((_, vendor),) = texts(page, "vendor_differs")
    assert "names nvidia" in vendor
    assert "'K100 64G' (line 10) is a card of hygon" in vendor
    assert texts(page, "devices_differ") == [(32, "'DCU Z100L' is another card than 'K100 64G' (line 10)")]
    assert "11 of 14 result cells" in texts(page, "empty_cells")[0][1]


def test_two_machines_of_eight_called_eight_cards() -> None:
    ((line, text),) = texts(linted("distilbert"), "card_count")
    assert (line, text.partition(": ")[2]) == (48, "the words say 2 nodes and 8 cards, 2x8 is 16")


def test_the_mfu_cells_that_hold_are_recomputed() -> None:
    found = {case: [(each.cell, str(each.message)) for each in linted(case).recomputed] for case in SEEDS}
    assert [cell for each in found.values() for cell, _ in each] == ["23.8%", "36.1%"]
    assert found["aquila_33b"][0][1].endswith(
        "1090.5 tokens/s per device x 2 x 3.4e+10 FLOP / 312 TFLOP/s (fp16) = 23.77%"
    )
    assert found["llama2_7b_finetune"][0][1].endswith("= 36.05%")


@pytest.mark.parametrize(
    ("case", "changed", "finds"),
    [
        ("llama2_7b_finetune", ("36.1%", "41.1%"), "MFU 41.1% does not follow"),
        ("aquila_33b", ("8724", "9724"), "MFU 23.8%"),
    ],
)
def test_an_mfu_that_does_not_follow_from_its_throughput(case: str, changed: tuple[str, str], finds: str) -> None:
    text = "\n".join(seed(case).lines).replace(*changed)
    page = lint_page(parse_page(text, "changed.md"), known())
    assert page.recomputed == ()
    assert finds in texts(page, "mfu_does_not_follow")[0][1]


def test_what_they_say_of_themselves() -> None:
    assert texts(linted("llama2_70b"), "default_differs") == [
        (32, "GAS is 44 by default, 1024 in the published configuration")
    ]
    assert "line 68 says" in texts(linted("llama2_7b_finetune"), "dataset_differs")[0][1]
    assert [line for line, _ in texts(linted("distilbert"), "target_missed")] == [46]


@pytest.mark.parametrize("case", SEEDS)
def test_windows_line_ends_change_nothing(case: str) -> None:
    text = "\r\n".join(seed(case).lines)
    assert lint_page(parse_page(text, "a"), known()).findings == lint_page(seed(case), known()).findings


@pytest.mark.parametrize("case", SEEDS)
def test_an_imported_page_has_the_results_that_the_case_has_from_it(case: str) -> None:
    """The cases' own references were typed from the same pages, by other hands."""
    reading = import_page(seed(case), known(), SaidOfPage())
    own = {identity_of(each) for each in known().manifests[case].references}
    assert {identity_of(each) for each in reading.page.references} <= own
    assert all(each.grade == "typed_by_hand" and each.line and each.sha256 for each in reading.page.references)

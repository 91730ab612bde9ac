"""A run and a published result as rows of the board."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from site_building import installed
from web_runs import bundle_path, recorded

from flagperf.bundle.run_record import Labels, ended
from flagperf.messages import message, render
from flagperf.plausibility.doubts import read_marked
from flagperf.spec.published import PublishedResult, published_names
from flagperf_publish.site.board import BoardFigure, BoardRow, published_row, run_row


def marked_row(name: str, *problems: str, lang: Any = "en") -> BoardRow:
    (found,) = read_marked([bundle_path(name)])
    return run_row(found, problems, lang)


def test_a_run_says_what_it_is_and_what_came_out() -> None:
    row, metric = marked_row("distilbert"), recorded("distilbert").run.metric("p_core")
    assert (row.case, row.vendor, row.card, row.shape, row.precision, row.profile) == (
        "distilbert", "cpu", "CPU", "1x1", "fp32", "tiny",
    )  # fmt: skip
    assert row.grade == "recomputable" and row.labels == () and row.status == "succeeded"
    assert metric is not None and metric.value is not None
    assert row.figures["p_core"].text == f"{metric.value:.1f}"
    assert row.figures["p_core"].value == pytest.approx(metric.value, abs=0.005)
    assert row.figures["mfu"].value is None and row.figures["mfu"].reason == "unknown_peak"
    assert row.identity["data.rows"] == "2048" and row.setup["configuration/training.batch_size"] == "32"


def test_a_run_without_results_has_no_figures_and_says_why() -> None:
    row = marked_row("failed")
    assert row.figures == {} and row.status != "succeeded" and row.reason


def test_a_bundle_that_is_not_verified_is_not_recomputable() -> None:
    row = marked_row("distilbert", "events/rank-00000.jsonl is missing", "another")
    assert row.grade == "logged" and row.labels == ("unverified",)
    assert row.problem == "events/rank-00000.jsonl is missing"


def test_simulated_runs_and_redacted_copies_are_labelled() -> None:
    row = marked_row("simulated")
    assert row.labels == ("simulated",) and row.vendor == "metax (simulated)"
    assert "unsteady" in row.figures["p_core"].marks.split()
    found = recorded("distilbert")
    copy = msgspec.structs.replace(found, run=msgspec.structs.replace(found.run, redacted=True))
    row = run_row(copy, (), "en")
    assert row.grade == "recomputable" and row.labels == ("redacted",)


def test_reasons_are_in_the_language_of_the_site() -> None:
    found = recorded("failed")
    ending = ended("timed_out", message("ending.timed_out", seconds=6))
    run = msgspec.structs.replace(found, run=msgspec.structs.replace(found.run, ending=ending))
    assert run_row(run, (), "zh").reason == render(message("ending.timed_out", seconds=6), "zh")
    assert run_row(run, (), "zh").reason != run_row(run, (), "en").reason


def test_every_text_is_on_one_line_and_controls_nothing() -> None:
    found = msgspec.structs.replace(recorded("distilbert"), labels=Labels(("a",), "one\ntwo\x1b[31m\u202e"))
    assert run_row(found, (), "en").note == "one two\\x1b[31m\\u202e"


def test_a_published_result_has_its_name_its_source_and_its_grade() -> None:
    manifest = installed()["distilbert"]
    name, reference = next(iter(published_names("distilbert", manifest.references).items()))
    row = published_row(name, reference, manifest)
    assert row.name == "published:distilbert-nvidia-a100-sxm4-40gb-1x8-fp32"
    assert (row.status, row.grade, row.profile, row.is_published) == ("published", "typed_by_hand", "standard", True)
    assert row.source == "training/nvidia/distilbert-pytorch/README.md" and row.link.endswith(row.source)
    assert row.figures["p_core"] == BoardFigure("1942.6", 1942.6)


@pytest.mark.parametrize(
    ("source", "line", "shown", "link"),
    [
        ("javascript:alert(1)", 0, "javascript:alert(1)", ""),
        ("https://example.com/a b", 0, "https://example.com/a b", ""),
        ("https://example.com/page", 0, "https://example.com/page", "https://example.com/page"),
        ("old/README.md", 43, "old/README.md:43", ""),
    ],
)
def test_only_addresses_of_the_web_are_links(source: str, line: int, shown: str, link: str) -> None:
    reference = PublishedResult("acme", "A1", 1, 8, "fp32", "none", source, {"p_core": 1.0}, line=line)
    row = published_row("name", reference, installed()["distilbert"])
    assert (row.source, row.link) == (shown, link)

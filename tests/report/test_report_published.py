"""Published results beside a run's own: on its card, in a table of several runs, and on its page."""

from pathlib import Path

import pytest
from report_builders import MANIFEST, changed, cpu_run, recorded
from report_reading import table_of, tables

from flagperf.bundle.run_record import Ending
from flagperf.report.screens import case_report, run_report
from flagperf.report.terminal import to_terminal
from flagperf.spec.manifest import Page
from flagperf_publish.pages.layouts import page

FAILED = recorded(ending=Ending("failed", "why"), figures={})
MANY = changed(MANIFEST, references=MANIFEST.references * 3)
OTHER_CASE = changed(MANIFEST, name="other", page=Page(("configuration", "precision", "mem"), ()))


def published_rows(*runs, **options):
    """Of the terminal: name of the row -> its cells by their heads."""
    heads, *rows = table_of(run_report(runs, **options), "Published results")
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def test_the_runs_own_row_comes_first_and_is_marked():
    names = list(published_rows(recorded()))
    assert names[0] == "this run: C500, 1 node, 8 devices (1x8)"
    assert names[1] == "nvidia A100-SXM4-40GB, 1 node, 8 devices (1x8)"
    own = published_rows(recorded())[names[0]]
    assert (own["p_core"], own["mem"]) == ("1755.5", "37.0/64.0")
    assert "MFU" not in own, "nothing was published of it"


def test_rows_of_several_runs_are_marked_by_their_short_ids():
    other = recorded("20250103T000000Z-distilbert-metax-1x8-eeee")
    names = list(published_rows(recorded(), other))[:2]
    assert [name.partition(":")[0] for name in names] == ["20250102T030405Z", "20250103T000000Z"]


def test_what_a_run_changed_is_shown_even_where_no_published_result_changed_anything():
    changed_run = recorded(set_values={"training.batch_size": 96})
    assert "fix_hp" not in next(iter(published_rows(recorded()).values()))
    own, *others = published_rows(changed_run).values()
    assert (own["fix_hp"], {row["fix_hp"] for row in others}) == ("bs=96", {"/"})


def test_the_case_is_a_column_where_there_are_several():
    rows = published_rows(recorded(), recorded("b", manifest=changed(MANIFEST, name="other")))
    assert [row["Case"] for row in rows.values()][:2] == ["distilbert", "other"]
    assert "Case" not in next(iter(published_rows(recorded(), recorded("b")).values()))


def test_cases_of_other_columns_have_a_table_of_their_own():
    document = run_report([recorded(), recorded("b", manifest=OTHER_CASE)])
    for title, case, heads in (
        ("Published results of distilbert", "distilbert", ["precision", "e2e_time", "p_whole"]),
        ("Published results of other", "other", ["precision", "mem"]),
    ):
        head, own, *_published = table_of(document, title)
        assert head[:2] == ["Configuration", "Case"] and head[2:5] == heads
        assert own[1] == case


@pytest.mark.parametrize(
    "show", [lambda *runs: to_terminal(run_report(runs), width=200), lambda *runs: page(runs, "en")]
)
def test_nothing_is_compared_with_runs_that_failed(show):
    assert "Published results" not in show(FAILED)
    assert "Published results" in show(recorded("other"))
    both = show(FAILED, recorded("other")).partition("Published results")[2]
    assert both.count("C500, 1 node") == 1


def test_they_can_be_left_out():
    assert "Published results" not in page([recorded()], "en", published=False)
    for runs in ([recorded()], [recorded(), recorded("b")]):
        assert "Published results" not in to_terminal(run_report(runs, published=False), width=200)


@pytest.mark.parametrize(
    ("source", "cell"),
    [
        ("training/a/b/README.md (unmerged pull request 286)", "training/a/b/README.md (unmerged pull request 286)"),
        ("https://example.org/results", "<https://example.org/results>"),
        ("a talk", "a talk"),
        ("training/../x y.md", "training/../x y.md"),
    ],
)
def test_a_source_that_is_no_path_there_is_text(source, cell):
    manifest = changed(MANIFEST, references=(changed(MANIFEST.references[0], source=source),))
    assert tables(page([recorded(manifest=manifest)], "en"))[2][2][-1] == cell


@pytest.mark.parametrize(("manifest", "is_collapsed"), [(MANIFEST, False), (MANY, True)])
def test_more_than_six_rows_are_collapsed_on_a_page(manifest, is_collapsed):
    text = page([recorded(manifest=manifest)], "en")
    assert (
        "<details>\n<summary>Published results of this case, for comparison (7)</summary>\n\n| " in text
    ) == is_collapsed
    assert ("\n* Published results" in text) != is_collapsed


def test_results_without_figures_are_named_below():
    bare = changed(MANIFEST.references[0], values={}, device="A1")
    text = to_terminal(case_report(changed(MANIFEST, references=(*MANIFEST.references, bare)), Path("cases")), width=80)
    assert text.endswith("\nPublished without figures: nvidia A1 1x8\n")


def test_a_case_of_which_nothing_is_published_has_no_table():
    nothing = changed(MANIFEST, references=())
    assert "Published" not in page([recorded(manifest=nothing)], "en")
    assert "Published" not in to_terminal(
        run_report([changed(cpu_run(), run=changed(cpu_run().run, manifest=nothing))]), width=80
    )


def test_results_of_one_configuration_that_are_published_on_several_pages_are_one_row():
    first, *_ = MANIFEST.references
    one = changed(first, values={"p_core": 1.0}, source="training/one.md")
    other = changed(first, values={"p_train": 2.0}, source="training/other.md")
    again = changed(first, values={"p_core": 3.0}, source="training/again.md")
    run = recorded(manifest=changed(MANIFEST, references=(one, other, again)))
    table = next(each for each in tables(page([run], "en")) if "Source" in each[0])
    _, _, joined, alone = table
    found = {head.removeprefix("\\*"): cell for head, cell in zip(table[0], joined, strict=True)}
    assert (found["p_core"], found["p_train"]) == ("1.0", "2.0")
    assert "training/one.md" in found["Source"] and "training/other.md" in found["Source"]
    assert "training/again.md" in alone[-1]

"""What the terminal shows of one run and of several, plain and in color."""

import io
import subprocess
import sys

import pytest
from report_builders import MANIFEST, changed, cpu_run, metax_runs, metric, metrics, recorded

from flagperf.report import print_summary, print_summary_table, summary, summary_table
from flagperf.spec import Page, Quality
from flagperf.store.run import Ending


def rows(run) -> dict[str, tuple[str, str]]:
    return {row.label: (row.value, row.note) for row in summary(run).rows}


def printed(show, content, color: bool) -> str:
    file = io.StringIO()
    show(content, color=color, file=file)
    return file.getvalue()


def test_summary_of_a_run():
    found = rows(recorded())
    assert found["run"] == ("succeeded", "")
    assert found["e2e_time"] == ("420.2 s", "")
    assert found["p_whole"] == ("1621.0 samples/s", "")
    assert found["p_core"] == ("1755.5 samples/s", "1750.1 to 1761.0 (95 %, batch means)")
    assert found["token/p/s"] == ("2917 tokens/s per device", "")
    assert found["step time"] == ("146.1 / 150.2 / 164.4 ms", "p50 / p90 / p99")
    assert found["acc"] == ("0.913", "target acc 0.910, got 0.913: reached; acc over 872 evaluated rows")
    assert found["loss"] == ("0.6931 -> 0.1234", "first step -> last step")
    assert found["mem"][0] == "37.0/64.0 GiB"
    assert found["mem"][1].startswith(
        "of one device, peak on 0000:05:00.0 212.5 s after training began, read by mx-smi"
    )
    assert found["MFU"][0] == "23.4%"
    assert "peak 15 TFLOP/s (fp32; source: MetaX C500 product brief" in found["MFU"][1]
    assert found["padding ratio"] == ("97.4%", "")
    assert (found["steps kept"][0], found["steps dropped"][0]) == ("2,620", "20")
    assert summary(recorded()).title == "distilbert 1, profile standard, metax C500, 1x8, fp32"


def test_summary_says_why_there_is_no_mfu_and_what_is_not_comparable():
    found = rows(cpu_run())
    assert found["MFU"][0] == "n/a"
    assert found["MFU"][1].startswith("unknown_peak (")
    assert "profile tiny is not the published configuration" in found["run"][1]
    assert found["p_core"][1] == found["p_train"][1] == "oversubscribed"
    assert found["oversubscribed"] == ("", "more workers than cores, which slow each other down")
    assert "host memory of one worker" in found["mem"][1]


def test_summary_of_a_failed_run_has_its_reason_and_only_what_was_measured():
    figures = {"e2e_time": metric("e2e_time", 12.0), "p_core": metric("p_core", None, reason="run_failed")}
    found = rows(recorded(ending=Ending("timed_out", "no end after 60 s"), figures=figures))
    assert found == {"run": ("timed_out", "no end after 60 s"), "e2e_time": ("12.0 s", "")}
    assert rows(recorded(ending=None, figures={}))["run"][0] == "no ending"


def test_loss_that_the_case_reports_is_shown_once():
    manifest = changed(MANIFEST, qualities=(Quality("loss", "nats", "mean", format="loss"),), target=None)
    manifest = changed(manifest, page=Page(("configuration", "loss"), ("loss",)))
    assert rows(recorded(manifest=manifest))["loss"] == ("0.1234", "")


def test_simulated_run_says_so():
    run = recorded(simulated=True)
    assert "metax (simulated) C500" in summary(run).title
    assert summary_table([run]).runs.rows[0][2] == "metax (simulated)"


def test_plain_summary_is_aligned_text_without_escapes_or_boxes():
    text = printed(print_summary, summary(recorded()), color=False)
    assert text.isascii()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0] == "distilbert 1, profile standard, metax C500, 1x8, fp32"
    assert lines[1] == "run            succeeded"
    assert lines[2] == "e2e_time       420.2 s"
    assert "Published results of this case, for comparison" in lines
    assert all(line == line.rstrip() for line in lines)


def test_color_uses_escapes_and_loses_no_figure():
    text = printed(print_summary, summary(recorded()), color=True)
    assert "\x1b[" in text
    for part in ("1755.5 samples/s", "1861.9", "metax C500-64GB 1x8"):
        assert part in text


def test_table_of_runs_has_reason_codes_in_place_of_empty_cells():
    table = summary_table(metax_runs()).runs
    assert table.head[:5] == ("run", "status", "vendor", "Configuration", "precision")
    failed, overridden, standard = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert failed["status"] == "out_of_memory"
    assert failed["p_core"] == "run_failed"
    assert overridden["MFU"] == "unknown_peak"
    assert overridden["fix_hp"] == "bs=96, lr=1.5e-4"
    assert standard["mem"] == "37.0/64.0"
    assert "/" not in (failed["e2e_time"], overridden["MFU"])


def test_what_is_not_the_published_configuration_is_noted_below_the_table():
    failed, overridden, _standard = metax_runs()
    (note,) = summary_table([failed, overridden, recorded()]).notes
    assert note.startswith(f"{overridden.run.id}: profile standard with changed values is not the published")
    assert note.endswith("changed: bs=96 (tuning metax), lr=1.5e-4 (--set)")
    assert note in printed(print_summary_table, summary_table([overridden]), color=False)
    assert "profile tiny is not the published configuration" in rows(cpu_run())["run"][1]


def test_marks_are_written_out_in_the_table():
    table = summary_table([cpu_run()]).runs
    assert dict(zip(table.head, table.rows[0], strict=True))["p_core"] == "13.1 (oversubscribed)"


def test_runs_of_several_cases_share_a_table():
    manifest = changed(MANIFEST, name="other", page=Page(("configuration", "token/p/s"), ()), references=())
    table = summary_table([recorded(), recorded("b", manifest=manifest)]).runs
    first, second = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert (first["token/p/s"], second["token/p/s"]) == ("not_applicable", "2917")
    assert (first["acc"], second["acc"]) == ("0.913", "not_applicable")


@pytest.mark.parametrize("color", [False, True])
def test_table_of_runs_prints_references_below(color):
    text = printed(print_summary_table, summary_table(metax_runs()), color)
    assert text.index("aaaa") < text.index("Published results") < text.index("A100-SXM4-40GB")
    assert ("\x1b" in text) == color


def test_empty_tables_are_not_printed():
    run = recorded(manifest=changed(MANIFEST, references=()))
    assert "Published" not in printed(print_summary, summary(run), color=False)
    assert printed(print_summary_table, summary_table([]), color=False) == ""


@pytest.mark.parametrize("color", [False, True])
def test_foreign_text_cannot_steer_the_terminal(color):
    run = recorded(ending=Ending("failed", "bad\x1b]0;title\x07\r\n[red]text[/red]"), figures=metrics())
    text = printed(print_summary, summary(run), color)
    assert "\x1b]" not in text
    assert "\x07" not in text
    assert "[red]text[/red]" in text


def test_chinese_words_are_aligned_by_their_width():
    run = recorded(ending=Ending("failed", "内存"), figures={})
    table = summary_table([run]).runs
    table = changed(table, head=("列", "b"), rows=(("内存不足", "x"), ("ab", "y")))
    text = printed(print_summary_table, changed(summary_table([]), runs=table), color=False)
    assert text.splitlines() == ["列        b", "内存不足  x", "ab        y"]


def test_reports_import_neither_rich_nor_torch():
    code = "import sys, flagperf.report; print([name for name in ('rich', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

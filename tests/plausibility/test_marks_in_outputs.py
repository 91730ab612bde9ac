"""A marked number carries its code into every format, and nothing that is recorded changes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from doubt_builders import figure, figure_run, run_with
from recorded_bundles import FOLDER, recorded_bundle
from report_builders import metric

from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.verify import verify_bundle
from flagperf.cli import cli
from flagperf.metrics.rows import MeasuredRow
from flagperf.plausibility.doubts import marked, read_marked
from flagperf.report.run_json import to_json
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf_publish.export.data_files import to_csv
from flagperf_publish.pages.layouts import page

BUNDLES = FOLDER
DIVERGED = recorded_bundle("glm_diverged")
SEVERAL = sorted(BUNDLES.glob("*-distilbert-cpu-*"))


def terminal(*runs, width: int = 200) -> str:
    return to_terminal(run_report(marked(runs), published=False), width=width)


def test_the_card_has_the_mark_its_meaning_and_the_numbers():
    text = terminal(run_with(steps_kept=5))
    assert "few_repeats: 5 steps were kept; an interval needs 20" in text
    assert "too few steps or repeats to say how much it varies" in text


@pytest.mark.parametrize(("lang", "said"), [("en", "5 steps were kept"), ("zh", "保留5步")])
def test_the_page_has_it_as_a_footnote_and_among_its_notes(lang, said):
    text = page(marked([run_with(steps_kept=5)]), lang)
    assert "few_repeats" in text
    assert said in text
    assert any(line.startswith("[^") and "few_repeats" in line for line in text.splitlines())


def test_json_has_marks_and_doubts():
    (run,) = json.loads(to_json(marked([run_with(steps_kept=5)])))["runs"]
    assert run["metrics"]["p_core"]["marks"] == ["few_repeats"]
    assert run["doubts"][0]["rule"] == "few_repeats"
    assert "p_core" in run["doubts"][0]["metrics"]
    assert run["doubts"][0]["text"] == "5 steps were kept; an interval needs 20"


def test_csv_has_a_column_of_marks():
    labels = {"precision": "bf16"}
    inputs = {"row": "gemm", "labels": labels, "per_device": {"0/a": 1.0}}
    row = MeasuredRow("gemm", labels, "s", median=0.01, num_repeats=5, calls=1, total_calls=5)
    run = figure_run([(figure("gemm_bf16"), metric("gemm_bf16", 196.8, inputs=inputs))], (row,))
    (line,) = csv.DictReader(io.StringIO(to_csv(marked([run]))))
    assert line["marks"] == "few_repeats"
    assert "few_repeats" in terminal(run)


def test_rows_that_are_no_figures_have_their_marks_in_every_table():
    labels = {"operator": "mm", "group": "matmul", "library": "eager"}
    rows = [
        MeasuredRow("operators", labels, "s", rank=rank, median=0.01, num_repeats=repeats, calls=1)
        for rank, repeats in enumerate((50, 5))
    ]
    run = figure_run([], tuple(rows))
    lines = csv.DictReader(io.StringIO(to_csv(marked([run]))))
    assert [line["marks"] for line in lines] == ["", "few_repeats"]
    assert "10 ms (few_repeats)" in terminal(run)
    assert "few_repeats: 1 of 2 rows have fewer than 30 repeats that count, down to 5" in terminal(run)


def flagperf(*arguments: object) -> str:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_commands_show_the_doubts_of_a_recorded_run():
    for command in (("runs", "show"), ("report",)):
        assert "diverged: training diverged: the loss of step 8" in flagperf(*command, DIVERGED)
    shown = json.loads(flagperf("runs", "show", DIVERGED, "--json"))["runs"][0]
    assert "diverged" in shown["metrics"]["p_core"]["marks"]
    assert {doubt["rule"] for doubt in shown["doubts"]} >= {"diverged", "few_repeats"}


def test_a_list_of_runs_has_the_marks_of_main_results():
    lines = {line["id"]: line for line in json.loads(flagperf("runs", "list", "--runs-dir", BUNDLES, "--json"))}
    assert set(lines[DIVERGED.name]["headline"][0]["marks"]) >= {"diverged", "few_repeats"}
    shown = next(line for line in flagperf("runs", "list", "--runs-dir", BUNDLES).splitlines() if DIVERGED.name in line)
    assert "samples/s*" in shown


def test_a_copy_of_a_bundle_under_another_id_is_seen_in_a_report_of_both(tmp_path: Path):
    copy = tmp_path / SEVERAL[0].name
    shutil.copytree(SEVERAL[0], copy)
    (copy / "run.json").write_text((copy / "run.json").read_text().replace(SEVERAL[0].name, "copy"))
    assert "identical_figures" in flagperf("report", SEVERAL[0], copy)


def test_what_is_recorded_has_no_such_mark_and_still_verifies():
    before = (DIVERGED / "run.json").read_bytes()
    (shown,) = read_marked([DIVERGED])
    assert shown.doubts
    assert read_bundle(DIVERGED).doubts == ()
    assert all("diverged" not in each.marks for each in read_bundle(DIVERGED).run.metrics)
    assert verify_bundle(DIVERGED).problems == ()
    assert (DIVERGED / "run.json").read_bytes() == before

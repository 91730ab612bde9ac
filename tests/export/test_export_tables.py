"""Tables of runs and of steps: unrounded, with columns that only grow."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from recorded_bundles import FOLDER, IDS, recorded_bundle

from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.run_record import Labels, write_labels
from flagperf.cli import run_cli
from flagperf.metrics.registry import ENTRIES
from flagperf.plausibility.doubts import read_marked
from flagperf.report.run_json import to_json
from flagperf_publish.export.run_lines import COLUMNS, METRIC_CELLS, read_exported, run_columns, run_lines, to_csv
from flagperf_publish.export.run_lines import CURVE_COLUMNS as STEP_COLUMNS

ROOT = Path(__file__).parents[2]
RECORDED = FOLDER
RUN = IDS["distilbert"]
BUNDLES = sorted(path for path in RECORDED.iterdir())


def exported(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_cli(["export", *arguments, "--runs-dir", str(RECORDED)]) == 0
    return capfd.readouterr().out


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_line_has_every_metric_of_its_run_unrounded(capfd: pytest.CaptureFixture[str]) -> None:
    (line,) = table(exported(capfd, "csv", RUN))
    (marked,) = read_marked([RECORDED / RUN])
    run = marked.run
    for metric in run.metrics:
        assert line[metric.name] == ("" if metric.value is None else repr(metric.value))
        assert line[f"{metric.name}.unit"] == metric.unit
        assert line[f"{metric.name}.reason"] == (metric.reason or "")
        assert line[f"{metric.name}.marks"] == " ".join(metric.marks)
        low = repr(metric.interval.low) if metric.interval else ""
        assert line[f"{metric.name}.low"] == low
    assert (line["run"], line["status"], line["shape"], line["published"]) == (RUN, "succeeded", "1x1", "false")
    assert json.loads(line["values"])["training.batch_size"] == 32


def test_all_runs_are_exported_unless_some_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    lines = table(exported(capfd, "csv"))
    assert [line["run"] for line in lines] == [path.name for path in BUNDLES]
    assert {line["status"] for line in lines} >= {"succeeded", "failed", "out_of_memory", ""}


def test_columns_are_the_same_for_any_runs_but_for_metrics_of_cases() -> None:
    """A new one is added behind those of its kind; none is renamed or removed."""
    alone = list(run_columns([]))
    assert alone == [column.name for column in COLUMNS] + [f"{name}{end}" for name in ENTRIES for end in METRIC_CELLS]
    lines = list(run_lines(read_exported(path) for path in BUNDLES))
    with_cases = list(run_columns(lines))
    assert with_cases[: len(alone)] == alone
    assert with_cases[len(alone) :][:7] == [f"acc{end}" for end in METRIC_CELLS]


def test_the_columns_of_schema_1_are_still_there() -> None:
    names = (
        "run created status reason simulated redacted case case_version kind profile published vendor adapter device "
        "device_memory_bytes nodes devices_per_node devices shape precision batch_size overrides values model dataset "
        "hosts flagperf_version environment.machine environment.cpu environment.network environment.os "
        "environment.kernel environment.container environment.driver environment.framework environment.python "
        "environment.commit tags note manifest_sha256 path"
    )
    assert [column.name for column in COLUMNS][: len(names.split())] == names.split()
    steps = "run case vendor device shape precision step warmup loss samples compute_seconds period_seconds remark"
    assert list(STEP_COLUMNS)[: len(steps.split())] == steps.split()
    assert list(METRIC_CELLS)[:7] == ["", ".unit", ".reason", ".detail", ".marks", ".low", ".high"]


def test_every_column_is_documented() -> None:
    page = (ROOT / "docs" / "export.md").read_text()
    named = set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE))
    wanted = {column.name for column in COLUMNS if not column.name.startswith("environment.")}
    assert wanted | set(STEP_COLUMNS) | {f"NAME{end}" for end in METRIC_CELLS} <= named


def test_the_lines_of_python_in_the_docs_make_a_textfile(capfd: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "export.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    lines = exported(capfd, "jsonl")
    made = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True).stdout
    form = re.compile(r'flagperf_[a-z0-9_]+\{case="\w+",(?:[a-z]+="[^"]+",?){5}\} -?[0-9.e+-]+')
    assert len(made.splitlines()) > 100
    assert [line for line in made.splitlines() if not form.fullmatch(line)] == []
    of_glm = [each for each in map(json.loads, lines.splitlines()) if each["case"]["name"] == "glm"]
    newest = max(of_glm, key=lambda each: each["created"])
    (value,) = re.findall(r'^flagperf_e2e_time\{case="glm",.*\} (.*)$', made, re.MULTILINE)
    assert value == repr(newest["metrics"]["e2e_time"]["value"])


def test_json_lines_are_the_runs_of_the_json_report(capfd: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in exported(capfd, "jsonl").splitlines()]
    reported = json.loads(to_json([*chain(*(read_marked([path]) for path in BUNDLES))]))["runs"]
    for line, run in zip(lines, reported, strict=True):
        own = {"schema", "manifest_sha256", "path"}
        assert {name: value for name, value in line.items() if name not in own} == run
    assert {line["schema"] for line in lines} == {1}


def test_a_step_has_its_loss_and_times(capfd: pytest.CaptureFixture[str]) -> None:
    lines = table(exported(capfd, "csv", "--curves", RUN))
    run = read_bundle(RECORDED / RUN).run
    kept = [line for line in lines if line["warmup"] == "false"]
    counts = {name: metric.value for name in ("steps_kept", "steps_dropped") if (metric := run.metric(name))}
    assert (len(kept), len(lines) - len(kept)) == (counts["steps_kept"], counts["steps_dropped"])
    assert [int(line["step"]) for line in lines] == list(range(1, len(lines) + 1))
    first, last, median = run.metric("loss_first"), run.metric("loss"), run.metric("step_time_p50")
    assert first and last and median
    assert (float(lines[0]["loss"]), float(lines[-1]["loss"])) == (first.value, last.value)
    assert median.value in [float(line["compute_seconds"]) for line in kept]
    assert all(line["compute_seconds"] == "" for line in lines if line["warmup"] == "true")
    of_two_ranks = table(exported(capfd, "csv", "--curves", IDS["distilbert_1x2"]))
    assert len({line["step"] for line in of_two_ranks}) == len(of_two_ranks) > 20


def test_runs_without_steps_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    failed = IDS["out_of_memory"]
    assert run_cli(["export", "csv", "--curves", failed, "--runs-dir", str(RECORDED)]) == 0
    printed = capfd.readouterr()
    assert printed.out.count("\n") == 1
    assert f"{failed} has no steps to export: run_failed" in printed.err
    rows = recorded_bundle("gemm")
    assert run_cli(["export", "csv", "--curves", str(rows)]) == 0
    assert f"{rows.name} has no steps to export: its case measures rows" in capfd.readouterr().err


def test_parquet_has_the_same_values_with_their_types(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run_cli(["export", "parquet", "--runs-dir", str(RECORDED), "--out", str(tmp_path / "a.parquet")]) == 0
    found = parquet.read_table(tmp_path / "a.parquet")
    capfd.readouterr()
    lines = table(exported(capfd, "csv"))
    assert found.column_names == list(lines[0])
    assert {str(found.schema.field(name).type) for name in ("p_core", "nodes", "simulated", "run")} == {
        "double", "int64", "bool", "string",
    }  # fmt: skip
    assert found.schema.metadata[b"flagperf.table_schema"] == b"1"
    for name in ("p_core", "p_core.low", "mem_used"):
        assert [_text(value) for value in found.column(name).to_pylist()] == [_text(line[name]) for line in lines]
    assert run_cli(["export", "parquet", "--curves", "--runs-dir", str(RECORDED), "--out", str(tmp_path / "c")]) == 0
    assert parquet.read_table(tmp_path / "c").column_names == list(STEP_COLUMNS)


def _text(value: Any) -> str:
    return "" if value in (None, "") else repr(float(value))


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run_cli(["export", "parquet", "--runs-dir", str(RECORDED), "--out", str(tmp_path / "a")]) == 2
    assert "flagperf[parquet]" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_labels_are_columns(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(RECORDED / RUN, tmp_path / RUN))
    write_labels(bundle, Labels(("fast", "new"), "=cmd()"))
    (line,) = run_lines([read_exported(bundle)])
    assert (line["tags"], line["note"]) == ("fast new", "=cmd()")
    text = "".join(to_csv(run_columns([line]), [line]))
    assert "'=cmd()" in text, "a spreadsheet would run it"


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_exported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RECORDED / RUN, tmp_path / RUN)
    shutil.copytree(RECORDED / RUN, tmp_path / "aaa")
    (tmp_path / "aaa" / "run.json").write_text("{}")
    assert run_cli(["export", "csv", "--runs-dir", str(tmp_path)]) == 0
    printed = capfd.readouterr()
    assert [line["run"] for line in table(printed.out)] == [RUN]
    assert "aaa is left out" in printed.err
    assert run_cli(["export", "csv", "aaa", "--runs-dir", str(tmp_path)]) == 2


def test_only_verified_runs_where_that_is_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = Path(shutil.copytree(RECORDED / RUN, tmp_path / RUN))
    run = json.loads((bundle / "run.json").read_text())
    run["metrics"][3].update(value=1e9)
    (bundle / "run.json").write_text(json.dumps(run))
    assert run_cli(["export", "csv", "--runs-dir", str(tmp_path)]) == 0
    assert len(table(capfd.readouterr().out)) == 1
    assert run_cli(["export", "csv", "--verified-only", "--runs-dir", str(tmp_path)]) == 0
    printed = capfd.readouterr()
    assert table(printed.out) == []
    assert f"{RUN} is not verified, and is left out" in printed.err


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs.csv"
    out.write_text("old")
    assert run_cli(["export", "csv", RUN, "--runs-dir", str(RECORDED), "--out", str(out), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"out": str(out), "bytes": out.stat().st_size}
    before = out.read_bytes()
    assert run_cli(["export", "csv", "nope", "--runs-dir", str(RECORDED), "--out", str(out)]) == 2
    assert (out.read_bytes(), list(tmp_path.iterdir())) == (before, [out])
    assert run_cli(["export", "csv", "--runs-dir", str(RECORDED), "--out", str(tmp_path / "no" / "x")]) == 2
    assert "cannot write" in capfd.readouterr().err

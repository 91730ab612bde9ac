"""A metric is one entry: with nothing else it is in run.json, on the terminal, on pages, in JSON, and verifies."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from flagperf import units
from flagperf.bundle.bundle import read_bundle, read_record, write_run
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.bundle.verify import verify_bundle
from flagperf.metrics.entry import Absent, Finding, Found, Metric, MetricEntry
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import ENTRIES, compute_metrics
from flagperf.report.run_json import to_json
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf_publish.pages.layouts import page
from sealing import seal_again
from test_verify import bundle  # noqa: F401  a fixture

NAME = "slowest_step"


def slowest_step(run: Observed) -> Finding:
    if isinstance(run.window, Absent):
        return run.window
    return Found(max(run.window.compute_ns) / units.SECOND_NS)


ENTRY = MetricEntry(
    name=NAME,
    unit="s",
    scope="system",
    group="steps",
    formula=slowest_step,
    format=units.milliseconds,
    shown_unit="ms",
    title={"en": "Slowest step", "zh": "最慢一步"},
    remark={"en": "compute time, ms", "zh": "计算时间，单位毫秒"},
    noted="timing",
)


@pytest.fixture
def added(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A run that was recorded after the entry was added."""
    monkeypatch.setitem(ENTRIES, NAME, ENTRY)
    return recorded_again(bundle, {NAME: 1})


def recorded_again(path: Path, more: dict[str, int]) -> Path:
    """The same raw files, as a run whose plan had these metrics as well."""
    run = read_bundle(path).run
    versions = {**run.metric_versions, **more}
    metrics = compute_metrics(Observed(run.job, run.manifest, read_record(path)))
    write_run(path, msgspec.structs.replace(run, metrics=metrics, metric_versions=versions))
    seal_again(path)
    return path


def metric_of(run: Run) -> Metric:
    found = run.metric(NAME)
    assert found is not None
    return found


def own_problems(path: Path) -> list[str]:
    """Without the plan's: this test rewrote what was planned."""
    return [each for each in verify_bundle(path).problems if "metric_versions has changed" not in each]


def test_it_is_in_run_json_and_verifies(added: Path) -> None:
    content = json.loads((added / "run.json").read_text())
    (stored,) = [metric for metric in content["metrics"] if metric["name"] == NAME]
    assert (stored["value"], stored["unit"], stored["definition"]) == (0.5, "s", NAME)
    assert own_problems(added) == []


def test_it_is_on_the_terminal_on_pages_and_in_json(added: Path) -> None:
    recorded = read_bundle(added)
    assert "slowest step  " in to_terminal(run_report([recorded]), width=200)
    shown = with_page(recorded)
    assert "Slowest step: 500.0 ms" in page([shown], "en")
    assert "最慢一步：500.0 ms" in page([shown], "zh")
    assert json.loads(to_json([recorded]))["runs"][0]["metrics"][NAME]["value"] == 0.5


def test_a_case_can_make_it_a_column_and_a_row(added: Path) -> None:
    shown = with_page(read_bundle(added), NAME)
    assert f"| {NAME}" in page([shown], "en") and "Slowest step" in page([shown], "en")
    assert "最慢一步" in page([shown], "zh") and "计算时间，单位毫秒" in page([shown], "zh")


def with_page(recorded: RecordedRun, *names: str) -> RecordedRun:
    layout = msgspec.structs.replace(
        recorded.run.manifest.page, columns=("configuration", "p_core", *names), rows=("task", "p_core", *names)
    )
    manifest = msgspec.structs.replace(recorded.run.manifest, page=layout)
    return msgspec.structs.replace(recorded, run=msgspec.structs.replace(recorded.run, manifest=manifest))


def test_a_run_from_before_it_was_added_verifies(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setitem(ENTRIES, NAME, ENTRY)
    assert verify_bundle(bundle).problems == ()


def test_a_version_that_this_flagperf_does_not_know_is_named(added: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENTRIES, NAME, msgspec.structs.replace(ENTRY, version=3))
    (problem,) = own_problems(added)
    assert problem == f"{NAME}: this flagperf has no version 1 of its formula; install the latest flagperf"

"""A page of metrics that the real parsers of Prometheus read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from recorded_bundles import FOLDER, IDS

from flagperf.cli import run_cli
from flagperf.export.prometheus import newest, to_page
from flagperf.export.recorded import Exported, read_exported
from flagperf.store.bundle import read_bundle

RECORDED = FOLDER
RUNS = [read_exported(path) for path in sorted(RECORDED.iterdir())]
LABELS = {"case", "profile", "vendor", "device", "shape", "precision"}


def changed(each: Exported, **fields: object) -> Exported:
    run = msgspec.structs.replace(each.run, **fields)
    return msgspec.structs.replace(each, recorded=msgspec.structs.replace(each.recorded, run=run))


def test_both_forms_are_read_by_the_real_parsers_with_the_same_samples() -> None:
    plain = {family.name: family for family in prometheus(to_page(RUNS, "prometheus"))}
    page = to_page(RUNS, "openmetrics")
    assert page.endswith("# EOF\n")
    opened = {family.name: family for family in openmetrics(page)}
    assert set(opened) - {"flagperf_run"} == set(plain) - {"flagperf_run_info"}
    assert len(opened) > 30
    for name in set(opened) & set(plain):
        assert sorted(map(str, opened[name].samples)) == sorted(map(str, plain[name].samples))


def test_units_are_base_units_and_the_ends_of_names() -> None:
    families = {family.name: family for family in openmetrics(to_page(RUNS, "openmetrics"))}
    assert all(family.name.endswith(f"_{family.unit}") for family in families.values() if family.unit)
    assert {family.unit for family in families.values()} >= {"seconds", "bytes", "ratio", "samples_per_second"}
    assert families["flagperf_p_core_samples_per_second"].documentation.endswith("(p_core)")
    assert "flagperf_padding_ratio" in families
    assert all(family.type in ("gauge", "info") for family in families.values())


def test_values_are_those_of_the_run_and_labels_say_what_was_run() -> None:
    (run,) = [each for each in RUNS if each.run.id == IDS["glm_diverged"]]
    families = {family.name: family for family in openmetrics(to_page([run], "openmetrics"))}
    (sample,) = families["flagperf_mem_used_bytes"].samples
    used = run.run.metric("mem_used")
    assert used is not None
    assert sample.value == used.value
    assert set(sample.labels) == LABELS | {"marks"}
    (about,) = families["flagperf_run"].samples
    assert (about.labels["run"], about.labels["status"], about.value) == (run.run.id, "succeeded", 1)


def test_of_each_configuration_the_newest_run_that_has_ended_counts() -> None:
    first, *_ = RUNS
    later = changed(first, id="later", created="2027-01-01T00:00:00+00:00")
    running = changed(first, id="running", created="2028-01-01T00:00:00+00:00", ending=None)
    ratios = changed(first, id="ratios", created="2029-01-01T00:00:00+00:00", redacted="ratios")
    assert [run.id for run in newest([running, later, first, ratios])] == ["later"]
    other = changed(first, job=msgspec.structs.replace(first.run.job, profile="standard"), id="other")
    assert {run.id for run in newest([first, later, other])} == {"later", "other"}


def test_marks_are_a_label() -> None:
    run = next(each for each in RUNS if any(metric.marks and metric.value is not None for metric in each.run.metrics))
    marks = {" ".join(metric.marks) for metric in run.run.metrics if metric.marks and metric.value is not None}
    families = openmetrics(to_page([run], "openmetrics"))
    assert {sample.labels.get("marks", "") for family in families for sample in family.samples} >= marks


@pytest.mark.parametrize("form", ["prometheus", "openmetrics"])
def test_text_of_others_cannot_add_a_line(form: str) -> None:
    evil = 'x"} 1\nflagperf_evil{a="\\'
    first = RUNS[0]
    job = msgspec.structs.replace(first.run.job, profile=evil)
    page = to_page([changed(first, job=job)], form)  # type: ignore[arg-type]
    parse = openmetrics if form == "openmetrics" else prometheus
    families = list(parse(page))
    assert all(family.name != "flagperf_evil" for family in families)
    assert families[0].samples[0].labels["profile"] == evil


def test_the_file_for_a_collector_is_replaced_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "flagperf.prom"
    assert run_cli(["export", "prometheus", "--runs-dir", str(RECORDED), "--out", str(out)]) == 0
    assert out.read_text() == to_page(RUNS, "prometheus")
    assert (out.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o644, [out])
    assert run_cli(["export", "prometheus", "--format", "openmetrics", "--runs-dir", str(RECORDED)]) == 0
    assert capfd.readouterr().out == to_page(RUNS, "openmetrics")


def test_no_run_is_an_error_and_no_finished_one_an_empty_page(tmp_path: Path) -> None:
    assert run_cli(["export", "prometheus", "--runs-dir", str(tmp_path)]) == 2
    unfinished = next(each for each in RUNS if each.run.ending is None)
    families = list(openmetrics(to_page([unfinished], "openmetrics")))
    assert not [sample for family in families for sample in family.samples]
    assert read_bundle(Path(unfinished.recorded.path)).run.ending is None

"""What a page refuses, each with the run, the rule and the figures."""

import math

import pytest
from report_builders import GIB, MANIFEST, changed, cpu_run, device, job, metric, metrics, recorded

from flagperf.bundle.run_record import Ending
from flagperf.errors import BadInput
from flagperf.spec.manifest import Page
from flagperf_publish.pages.layouts import page

RUN = "20250102T030405Z-distilbert-metax-1x8-aaaa"


def refusal(*runs, **options) -> str:
    with pytest.raises(BadInput) as caught:
        page(runs, "en", **options)
    return str(caught.value)


def test_runs_that_do_not_belong_on_one_page():
    other = recorded("b", manifest=changed(MANIFEST, name="glm"))
    newer = recorded("c", manifest=changed(MANIFEST, version=2))
    assert "at least one run" in refusal()
    assert f"run {RUN} was given more than once" in refusal(recorded(), recorded())
    assert f"distilbert 1 (run {RUN}), glm 1 (run b)" in refusal(recorded(), other)
    assert "distilbert 2 (run c)" in refusal(recorded(), newer)
    message = refusal(recorded(), cpu_run())
    assert "one vendor" in message and "`flagperf compare`" in message


def test_simulated_run_and_a_simulated_one_beside_a_real_one():
    assert "--allow-simulated" in refusal(recorded(simulated=True))
    message = refusal(recorded(), recorded("b", simulated=True), allow_simulated=True)
    assert f"metax (run {RUN}), metax (simulated) (run b)" in message


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"p_core": 1700.0}, ("p_core >= p_train", "p_core is 1700", "p_train is 1702.96")),
        ({"p_train": 1600.0}, ("p_train >= p_whole", "p_train is 1600", "p_whole is 1621.04")),
        ({"p_train": None, "p_core": 1600.0}, ("p_core >= p_whole",)),
        ({"e2e_time": 400.0}, ("samples / p_whole <= e2e_time", "670,000 / 1621.04 is 413.315 s", "e2e_time is 400 s")),
        ({"p_whole": 0.0}, ("p_whole > 0",)),
        ({"acc": 1.009}, ("0 <= acc <= 1", "acc is 1.009")),
        ({"mem_used": 65 * GIB}, ("0 < used <= total memory", "used 69,793,218,560 bytes")),
        ({"mem_used": 0}, ("0 < used <= total memory", "used 0 bytes")),
        ({"mem_total": 60 * GIB}, ("total memory = capacity of the device",)),
        ({"mfu": 1.2}, ("0 % <= mfu <= 100 %", "mfu is 120.0%")),
        ({"mfu": 0.25}, ("mfu = FLOP/s / peak", "mfu is 25.00%", "3.5175 TFLOP/s over 15 TFLOP/s is 23.45%")),
        ({"loss": math.nan}, ("every value is finite", "loss is nan")),
    ],
)
def test_figures_that_contradict_each_other(values, parts):
    message = refusal(recorded(figures=metrics(**values)))
    for part in (f"run {RUN}", *parts):
        assert part in message


def test_devices_that_are_not_nodes_times_devices_per_node_or_were_not_sampled():
    plan = job(nodes=2)
    plan = changed(plan, nodes=(plan.nodes[0], changed(plan.nodes[1], devices=(device(0),))))
    assert "devices = nodes x devices per node: the nodes have 8, 1 devices" in refusal(recorded(plan=plan))
    found = metrics()
    found["mem_used"] = changed(found["mem_used"], inputs={"per_device": {"0/a": 1, "0/b": 2}})
    assert "only 2 of 8 were" in refusal(recorded(figures=found))


def test_all_contradictions_are_named_at_once():
    message = refusal(recorded("a", figures=metrics(acc=2.0)), recorded("b", figures=metrics(p_core=1.0, mfu=3.0)))
    assert "run a: 0 <= acc" in message
    assert "run b: p_core >= p_train" in message
    assert "run b: 0 % <= mfu" in message


@pytest.mark.parametrize(
    "run",
    [
        recorded(figures=metrics(p_whole=1700.0, p_train=1700.0, p_core=1700.0)),
        recorded(figures={}),
        recorded(figures={"mem_used": metric("mem_used", None, reason="invalid_telemetry")}),
        recorded(ending=Ending("failed", "killed"), figures=metrics(p_core=1.0)),
        recorded(plan=job(memory_scope="host"), figures=metrics(mem_total=60 * GIB)),
    ],
    ids=["equal speeds", "no figures", "a missing figure", "a failed run", "memory of the host"],
)
def test_what_breaks_no_rule(run):
    page([run], "en")


def with_page(columns=MANIFEST.page.columns, rows=MANIFEST.page.rows, **fields):
    return recorded(manifest=changed(MANIFEST, page=Page(tuple(columns), tuple(rows), **fields)))


def test_unknown_column_names_the_case_and_near_matches():
    message = refusal(with_page(columns=("configuration", "p_cor")))
    assert "unknown column 'p_cor'" in message
    assert "p_core" in message
    assert "page.columns of case distilbert" in message


def test_unknown_row_and_remark_name_the_case_and_near_matches():
    assert "unknown row 'taks'; did you mean task" in refusal(with_page(rows=("taks",)))
    message = refusal(with_page(remarks={"p_cor": {"en": "x"}}))
    assert "page.remarks of case distilbert" in message


def test_rows_and_columns_that_do_not_name_the_same_metrics():
    rows = [row for row in MANIFEST.page.rows if row != "mfu"]
    assert "case distilbert: page.columns has mfu, but page.rows does not" in refusal(with_page(rows=rows))
    columns = [column for column in MANIFEST.page.columns if column != "acc"]
    page([with_page(columns=columns, rows=[row for row in MANIFEST.page.rows if row != "result"])], "en")
    assert "row result points to no column" in refusal(with_page(columns=columns))
    columns = [column for column in MANIFEST.page.columns if column != "mem"]
    assert "page.rows has mem, but page.columns does not" in refusal(with_page(columns=columns))

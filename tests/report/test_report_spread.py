"""How figures spread over nodes and devices, with spreads that are made up."""

import pytest
from report_builders import changed, job, metrics, recorded

from flagperf.bundle.run_record import Ending
from flagperf.metrics.entry import Metric
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf_publish.pages.layouts import page

SLOW = 13
"""A rank of the runs below: device 5 of node 1."""


def per_device(name, unit, figures, devices=8):
    keys = [f"{rank // devices}/0000:{rank % devices:02x}:00.0" for rank in range(len(figures))]
    inputs = {"per_device": dict(zip(keys, figures, strict=True))}
    return Metric(name, unit, name, "device", max(figures), inputs=inputs)


def spread_of(steps, waits=None):
    inputs = {"rank": 0, "step_seconds": steps, "wait_seconds": waits or [0.0] * len(steps)}
    return Metric("rank_spread", "ratio", "rank_spread", "rank", 1.0, inputs=inputs)


def shown(*figures, nodes=4, devices=8, **more):
    own = {metric.name: metric for metric in figures}
    run = recorded(figures={**metrics(), **own}, nodes=None, plan=job(nodes=nodes, devices=devices), **more)
    return to_terminal(run_report([run], published=False), width=200)


def alike(value, count=32):
    """Within half a percent of each other."""
    return [value * (1 + 0.005 * (rank % 3 - 1)) for rank in range(count)]


def with_slow(values, factor, rank=SLOW):
    return [value * factor if index == rank else value for index, value in enumerate(values)]


def lines_of(text, title="Slow, or worse than the others"):
    return [line.strip(" -*") for line in text.split(title)[1].split("\n\n")[0].splitlines() if line.strip()]


def test_several_nodes_show_lowest_median_and_highest_of_devices_and_nodes():
    text = shown(
        spread_of(with_slow(alike(0.1), 1.5)), per_device("mem_used", "bytes", [(1 + n) << 30 for n in range(32)])
    )
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "Step time, ms 32 devices 99.5 on rank 0 100.0 150.0 on rank 13" in rows
    assert "Step time, ms 4 nodes 99.9 on node 0 (node0) 100.0 106.3 on node 1 (node1)" in rows
    assert "Device memory used, GiB 32 devices 1.0 on rank 0 16.5 32.0 on rank 31" in rows
    assert "Device memory used, GiB 4 nodes 4.5 on node 0 (node0) 16.5 28.5 on node 3 (node3)" in rows


@pytest.mark.parametrize(
    ("figures", "what"),
    [
        (spread_of(with_slow(alike(0.1), 1.05)), "Step time 105.0 ms (median 100.0 ms)"),
        (spread_of(alike(0.1), with_slow([0.001] * 32, 5)), "Waiting for data in a step 5.0 ms (median 1.0 ms)"),
        (per_device("power_mean", "W", with_slow(alike(400.0), 0.8)), "Mean power 320.0 W (median 400.0 W)"),
        (
            per_device("clock_mean", "MHz", with_slow(alike(1500.0), 0.9)),
            "Mean compute clock 1,350 MHz (median 1,500 MHz)",
        ),
        (
            per_device("temperature_max", "°C", with_slow(alike(60.0), 1.2)),
            "Highest temperature 72.0 °C (median 60.0 °C)",
        ),
    ],
)
def test_a_device_that_is_worse_is_named_with_node_host_and_rank(figures, what):
    assert lines_of(shown(figures)) == [f"{what}: node 1 (node1), device 0000:05:00.0, rank 13"]


@pytest.mark.parametrize(
    "figures",
    [
        spread_of(with_slow(alike(0.1), 1.02)),
        spread_of(with_slow(alike(0.1), 0.5)),  # faster
        spread_of(alike(0.1), with_slow([0.001] * 32, 3)),  # 2 ms more, of steps of 100 ms
        per_device("power_mean", "W", with_slow(alike(400.0), 1.2)),
        per_device("temperature_max", "°C", with_slow(alike(60.0), 1.09)),
    ],
)
def test_a_device_that_is_not_worse_is_not_named(figures):
    text = shown(figures)
    assert "no device is slow, or worse than the others" in text and "Slow, or worse" not in text


def test_memory_differs_by_stage_and_names_nobody():
    text = shown(per_device("mem_used", "bytes", with_slow([1 << 30] * 32, 8)))
    assert "Device memory used, GiB" in text and "worse than the others" not in text


def test_a_node_whose_devices_are_all_slow_is_named_once():
    steps = [0.12 if 8 <= rank < 16 else 0.1 for rank in range(32)]
    lines = lines_of(shown(spread_of(steps)))
    assert lines == ["Step time 120.0 ms (median 100.0 ms): node 1 (node1), all its devices"]


def test_the_worst_come_first_and_the_rest_is_counted():
    steps = [0.1 + 0.01 * rank if rank < 10 else 0.1 for rank in range(64)]
    lines = lines_of(shown(spread_of(steps), nodes=8))
    assert lines[0].endswith("device 0000:01:00.0, rank 9") and lines[7].endswith("rank 2")
    assert lines[8:] == ["1 more stand out in Step time"]


def test_one_node_is_shown_only_if_a_device_stands_out():
    assert "Spread" not in shown(spread_of(alike(0.1, 8)), nodes=1)
    text = shown(spread_of(with_slow(alike(0.1, 8), 1.5, rank=5)), nodes=1)
    assert "Spread over devices" in text and "nodes" not in text.split("Spread over devices")[1].split("\n\n")[0]


@pytest.mark.parametrize("ending", [Ending("failed", "rank 1: no"), None])
def test_a_run_without_results_has_no_spread(ending):
    assert "Spread" not in shown(spread_of(with_slow(alike(0.1), 1.5)), ending=ending)


def test_nodes_that_are_one_machine_are_told_apart_by_their_number():
    plan = job(nodes=2, devices=2)
    plan = changed(plan, nodes=tuple(changed(node, host="here") for node in plan.nodes))
    run = recorded(figures={**metrics(), "rank_spread": spread_of([0.1, 0.1, 0.1, 0.2])}, plan=plan)
    text = to_terminal(run_report([run], published=False), width=200)
    assert "150.0 on node 1" in text and "here" not in text


def test_a_figure_of_boards_names_the_board():
    watts = {"0/board-a": 400.0, "0/board-b": 401.0, "1/board-a": 402.0, "1/board-b": 300.0}
    power = Metric("power_mean", "W", "power_mean", "device", 1.0, inputs={"per_device": watts})
    text = shown(power, nodes=2, devices=4)
    assert "4 boards" in text and "300.0 on node 1 (node1), board board-b" in text


def test_pages_have_it_for_each_row_in_both_languages():
    slow = {**metrics(), "rank_spread": spread_of(with_slow(alike(0.1, 16), 1.5))}
    runs = [recorded(), recorded("other", figures=slow, plan=job(nodes=2, run_id="other"))]
    english, chinese = (" ".join(page(runs, lang).split()) for lang in ("en", "zh"))
    assert "Spread over nodes and devices: row 2" in english and "各节点与设备之间的差异：第2行" in chinese
    assert "| Step time, ms | 16 devices | 99.5 on rank 0 | 100.0 | 150.0 on rank 13 |" in english
    assert "| 单步时间，ms | 16个设备 | 99.5，rank 0 | 100.0 | 150.0，rank 13 |" in chinese
    assert "Step time 150.0 ms (median 100.0 ms): node 1 (node1), device 0000:05:00.0, rank 13" in english
    assert "单步时间150.0 ms（中位数100.0 ms）：节点1（node1），设备0000:05:00.0，rank 13" in chinese

"""Metrics that case.toml takes from rows."""

from typing import Any, get_args

import msgspec
import pytest
from metric_builders import make_job, make_manifest, metrics_of, rank_file, record_of

from flagperf.api import Peak
from flagperf.events import RowMeasured
from flagperf.metrics.entry import Metric
from flagperf.metrics.row_figures import figure_entry
from flagperf.spec.manifest import RowFigure
from flagperf.units import SCALES, Unit

LINK = Peak("A1", "link_bandwidth", 4e9, "datasheet", "high")
LIMITS = {"bus_bytes": "link_bandwidth"}


def transfer(pair: str, seconds: float, bus_bytes: int = 10**9, **more: Any) -> RowMeasured:
    source, target = pair.split("-")
    labels = {"from": source, "to": target, "operation": "send"}
    work = {"bytes": 2 * 10**9, "bus_bytes": bus_bytes}
    return RowMeasured(0, "transfer", labels, "s", (seconds,), work, limits=LIMITS, **more)


def figure_of(*rows_of_ranks: list[RowMeasured], **wanted: Any) -> Metric:
    asked = {"name": "rate", "title": {"en": "Rate"}, "row": "transfer", "amount": "bytes", "unit": "GB/s", **wanted}
    figure = msgspec.convert(asked, RowFigure)
    ranks = [rank_file(*rows, rank=rank) for rank, rows in enumerate(rows_of_ranks)]
    job = make_job([len(ranks)], kind="base", peaks=(LINK,))
    return metrics_of(job, record_of(*ranks), make_manifest(kind="base", figures=(figure,)))["rate"]


def test_of_ranks_the_slowest_has_the_lowest_rate_and_the_highest_time() -> None:
    ranks = [transfer("0-1", 0.5)], [transfer("0-1", 1.0)]
    lowest = figure_of(*ranks, amount="bus_bytes", over="lowest")
    assert lowest.value == 1.0 and sorted(lowest.inputs["per_device"].values()) == [1.0, 2.0]
    assert (lowest.inputs["share"], lowest.inputs["peak"]) == (0.25, 4e9)
    slowest = figure_of(*ranks, amount="value", unit="us", over="highest")
    assert slowest.value == 1e6 and "peak" not in slowest.inputs


def test_the_peak_is_what_it_allows_of_the_figures_own_amount() -> None:
    found = figure_of([transfer("0-1", 1.0)])
    assert (found.value, found.inputs["peak"], found.inputs["share"]) == (2.0, 8e9, 0.25)


def test_a_pair_counts_once_by_its_slower_rank() -> None:
    ranks = [transfer("0-1", 0.5), transfer("1-0", 0.25)], [transfer("0-1", 1.0), transfer("1-0", 0.2)]
    found = figure_of(*ranks, by=["from", "to"], over="median")
    assert found.inputs["per_label"] == {"0 - 1": 2.0, "1 - 0": 8.0} and found.value == 5.0
    assert figure_of(*ranks, by=["from", "to"], over="lowest").value == 2.0


def test_a_pair_of_which_one_rank_failed_leaves_no_figure() -> None:
    broken = RowMeasured(0, "transfer", {"from": "0", "to": "1"}, "s", (), problem="no room", status="out_of_memory")
    found = figure_of([transfer("0-1", 0.5)], [broken], by=["from", "to"])
    assert found.value is None and found.reason == "not_measured"


@pytest.mark.parametrize(("amount", "value"), [("p50", 51.0), ("p90", 91.0), ("p95", 96.0), ("p99", 100.0)])
def test_a_figure_can_be_a_percentile_of_the_values_in_any_unit(amount: str, value: float) -> None:
    answered = RowMeasured(0, "transfer", {}, "s", tuple(number / 1000 for number in range(1, 102)))
    found = figure_of([answered], amount=amount, unit="ms")
    assert found.value == pytest.approx(value) and found.interval is None and "peak" not in found.inputs


@pytest.mark.parametrize(
    ("amount", "unit", "better"),
    [
        ("bytes", "GB/s", "faster"),
        ("p99", "ms", "quicker"),
        ("value", "requests/s", "higher"),
        ("value", "J", "lower"),
    ],
)
def test_which_way_a_figure_is_better_follows_from_its_unit(amount: str, unit: str, better: str) -> None:
    asked = {"name": "n", "title": {"en": "N"}, "row": "r", "amount": amount, "unit": unit}
    assert figure_entry(msgspec.convert(asked, RowFigure)).better == better


def test_every_unit_has_its_scale() -> None:
    assert set(SCALES) == set(get_args(Unit))


def test_more_than_the_links_can_is_shown_without_a_share() -> None:
    found = figure_of([transfer("0-1", 0.1)], amount="bus_bytes")
    assert found.value == 10.0 and "share" not in found.inputs

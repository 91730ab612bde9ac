"""The page with charts, section by section, as a document: what it has, and from where."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from recorded_bundles import FOLDER
from report_builders import changed, job, metrics
from report_builders import recorded as made_up
from web_runs import base_run, bundle_path, courses, measured_row, operators_run, recorded

from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.curve_files import curve_of_run
from flagperf.bundle.run_record import RecordedRun
from flagperf.errors import MissingPart
from flagperf.report import document as doc
from flagperf_publish.pages.layouts import to_html, web_document
from flagperf_publish.pages.timeline import PARTS, Bucket, RankCourse, RunCourse, StepCourse


def blocks_of(*runs: RecordedRun, **more: Any) -> list[doc.Block]:
    found = more.pop("courses", None)
    given = courses(*runs) if found is None else found
    document = web_document(runs, more.pop("lang", "en"), courses=given, allow_simulated=True, **more)
    return [each for block in document.blocks for each in (block.blocks if isinstance(block, doc.Fold) else (block,))]


def titled(blocks: list[doc.Block], title: str) -> Any:
    return next(block for block in blocks if getattr(block, "title", "") == title)


def titles(blocks: list[doc.Block], kind: Any) -> list[str]:
    return [block.title for block in blocks if isinstance(block, kind)]


def rank(number: int = 0, **changes: Any) -> RankCourse:
    plain = RankCourse(
        rank=number, began=1.0, measured=2.0, ended=9.0, evaluations=(), first_step=1, num_dropped=0, ends=[],
        periods=[], computes=[], losses=[], work={}, reports=[], parts=dict.fromkeys(PARTS, 1.0),
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def drawn(run: RecordedRun, title: str, steps: StepCourse | None = None, **cards: Any) -> Any:
    """Return the chart of this title, of a run of which one rank was read, or the samples of its cards."""
    course = RunCourse((rank(),) if steps else (), steps, cards, bool(cards))
    return titled(blocks_of(run, courses={run.run.id: course}), title)


def of_cards(run: RecordedRun, bucket: Callable[[int], Bucket]) -> dict[tuple[int, str], tuple[Bucket, ...]]:
    return {(0, device.id): (bucket(slot),) for slot, device in enumerate(run.run.job.nodes[0].devices)}


# --- what is there --------------------------------------------------------------------------------------------------


def test_a_training_run_has_its_charts() -> None:
    blocks = blocks_of(recorded("distilbert"))
    assert titles(blocks, doc.Chart) == ["Throughput", "Loss", "acc", "Memory in use"]
    assert titles(blocks, doc.Shares) == ["Where the time goes"]
    assert titles(blocks, doc.Histogram) == ["Compute time of a step"]


def test_power_and_the_like_are_there_where_the_probe_reads_them() -> None:
    assert {"Power", "Utilisation", "Temperature"} <= set(titles(blocks_of(recorded("simulated")), doc.Chart))


def test_rows_have_bars_sweeps_pairs_and_a_roofline() -> None:
    blocks = blocks_of(base_run())
    assert titles(blocks, doc.Chart) == ["stream", "Roofline"]
    assert titles(blocks, doc.Bars) == ["Figures, TFLOPS"]
    (matrix,) = [block for block in blocks if isinstance(block, doc.HeatMap)]
    assert matrix.rows == matrix.columns == ("0", "1", "2", "3")
    assert matrix.title == "Between devices, GB/s"
    (bars,) = [block for block in blocks if isinstance(block, doc.Bars)]
    assert [(bar.text, bar.limit) for bar in bars.bars] == [("17.25 TFLOPS", 20.0), ("251.5 TFLOPS", 300.0)]


def test_operators_have_the_slowest_and_their_share_of_the_roofline() -> None:
    blocks = blocks_of(operators_run())
    (slowest,) = [block for block in blocks if isinstance(block, doc.Bars)]
    assert slowest.bars[0].name == "rsqrt fp16 eager" and len(slowest.bars) == 10
    (shares,) = [block for block in blocks if isinstance(block, doc.HeatMap)]
    assert shares.is_share and len(shares.rows) == 11 and shares.columns == ("fp16 eager", "fp32 eager")


def test_charts_of_rows_name_what_tells_lines_and_pairs_apart() -> None:
    rows = [
        measured_row("stream", {"kind": kind, "bytes": size, "class": "sweep"}, work={"bytes": int(size)})
        for kind in ("copy", "triad")
        for size in ("1024", "2048")
    ]
    for way, one, other in itertools.product(("one-way", "both"), "01", "01"):
        ends = {"from": one, "to": other, "bytes": "1024", "class": "headline", "way": way}
        rows += [measured_row("link", ends, work={"bytes": 1024})] if one != other else []
    blocks = blocks_of(changed(base_run(), run=changed(base_run().run, rows=tuple(rows))))
    assert [series.name for series in titled(blocks, "stream").series] == ["copy", "triad"]
    assert titles(blocks, doc.HeatMap) == ["Between devices: one-way, GB/s", "Between devices: both, GB/s"]


def test_two_devices_of_a_node_are_beside_each_other() -> None:
    table = titled(blocks_of(recorded("distilbert_1x2")), "Spread over devices")
    assert ("Device memory used, GiB", "2 devices") in [(row[0].text, row[1].text) for row in table.rows]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_section_has_a_title_and_content(lang: Any) -> None:
    document = web_document([recorded("llama2_70b")], lang, courses={})
    headings = [block for block in document.blocks if isinstance(block, doc.Heading) and block.level == 2]
    assert len(headings) >= 7 and len(set(headings)) == len(headings)
    for before, after in zip(document.blocks, document.blocks[1:], strict=False):
        assert not (isinstance(before, doc.Heading) and isinstance(after, doc.Heading) and after.level <= before.level)


# --- the head -------------------------------------------------------------------------------------------------------


def headline(run: RecordedRun, **more: Any) -> doc.Headline:
    (found,) = [block for block in blocks_of(run, **more) if isinstance(block, doc.Headline)]
    return found


def test_the_head_says_what_was_run_how_it_ended_and_what_came_out() -> None:
    run = recorded("distilbert")
    found = headline(run)
    assert found.title == "DistilBERT, sentence classification"
    assert found.status == doc.Status("succeeded", True)
    assert [fact.cell.text for fact in found.facts][:5] == ["distilbert 1", "CPU", "1x1", "fp32", "tiny"]
    main = [figure for figure in found.figures if figure.headline]
    assert [figure.title for figure in main] == ["p_core", "token/p/s", "mfu"]
    speed = run.run.metric("p_core")
    assert main[0].cell == doc.Value(f"{speed.value:.1f}", "samples/s", speed.marks)
    assert main[0].note.startswith(f"{speed.interval.low:.1f} to {speed.interval.high:.1f} (95 %")
    assert isinstance(main[2].cell, doc.Empty) and main[2].cell.reason == "unknown_peak"


def test_cautions_come_before_figures() -> None:
    whole = read_bundle(bundle_path("distilbert"))
    assert headline(recorded("simulated")).cautions[0].startswith("simulated: no device was used")
    assert "is not the published configuration" in headline(whole).cautions[0]
    redacted = changed(whole, run=changed(whole.run, redacted=True))
    assert headline(redacted).cautions[0].startswith("redacted: names of hosts")
    assert headline(made_up(), courses={}).cautions == ()


def test_a_failed_run_says_why_and_shows_only_what_it_measured() -> None:
    run = recorded("failed")
    found = headline(run)
    assert found.status == doc.Status("timed out", False) and found.reason == run.run.ending.reason
    assert [figure.title for figure in found.figures] == ["mem"]


def test_what_is_missing_of_a_bundle_is_a_caution() -> None:
    run = recorded("distilbert")
    names = tuple(f"events/rank-{number:05d}.jsonl" for number in range(9))
    found = headline(run, courses={run.run.id: RunCourse((), None, {}, 0, names)})
    assert "events/rank-00000.jsonl, events/rank-00001.jsonl and 7 more" in found.cautions[-1]


# --- charts ---------------------------------------------------------------------------------------------------------


def test_the_throughput_has_its_interval_and_the_evaluations() -> None:
    run = recorded("distilbert")
    chart = titled(blocks_of(run), "Throughput")
    interval = run.run.metric("p_core").interval
    assert chart.bands[0] == doc.Band("p_core, 95 % interval", interval.low, interval.high, "y")
    assert {band.name for band in chart.bands[1:]} == {"evaluation"}
    assert [series.name for series in chart.series] == ["compute only", "with waiting for data"]


def test_runs_of_one_page_share_charts_and_have_the_others_folded() -> None:
    both = [recorded("distilbert"), recorded("failed")]
    document = web_document(both, "en", courses=courses(*both))
    assert sum(isinstance(block, doc.Headline) for block in document.blocks) == 2
    (loss,) = [block for block in document.blocks if getattr(block, "title", "") == "Loss"]
    assert isinstance(loss, doc.Chart) and [series.name for series in loss.series] == ["row 1", "row 2"]
    folds = [block.title for block in document.blocks if isinstance(block, doc.Fold)]
    assert folds[:2] == ["Row 1: CPU, 1 node, 1 device (1x1)", "Row 2: CPU, 1 node, 1 device (1x1)"]


def test_the_reference_is_drawn_beside_the_loss() -> None:
    run = recorded("distilbert")
    curve = curve_of_run(bundle_path("distilbert"))
    chart = titled(blocks_of(run, reference=curve), "Loss")
    assert chart.series[-1].is_limit and curve.run in chart.series[-1].name


def test_long_runs_are_shown_in_hours() -> None:
    buckets = (Bucket(0.0, 1.0, 2.0, 3.0), Bucket(72_000.0, 1.0, 2.0, 3.0))
    chart = drawn(recorded("distilbert"), "Throughput", StepCourse({"compute": buckets}, (), []))
    assert chart.x_title == "hours since the launch" and chart.series[0].ranges[-1] == (20.0, 1.0, 3.0)


def test_few_slow_steps_do_not_squeeze_all_others_into_one_column() -> None:
    times = [0.010 + index / 1e6 for index in range(1000)] + [5.0]
    chart = drawn(recorded("distilbert"), "Compute time of a step", StepCourse({}, (), times))
    assert chart.bins[-1][1] < 12 and "5 slower steps, up to 5000 ms" in chart.remark
    assert sum(count for _, _, count in chart.bins) == 996


def test_percentiles_of_the_histogram_are_those_of_the_metrics() -> None:
    run = recorded("distilbert")
    chart = titled(blocks_of(run), "Compute time of a step")
    p50_ms = 1000 * run.run.metric("step_time_p50").value
    assert chart.lines[0] == (f"p50 {p50_ms:.1f} ms", p50_ms)


def test_of_many_devices_the_median_the_extremes_and_the_highest_are_shown() -> None:
    run = made_up()
    chart = drawn(run, "Power", power_watts=of_cards(run, lambda slot: Bucket(1.0, 1.0, 2.0, 9.0 + slot)))
    median, highest = chart.series
    assert median.name == "median of 8 devices, shaded from the lowest to the highest"
    assert highest.name == "highest: rank 7: 0000:07:00.0"
    assert median.ranges == ((1.0, 1.0, 16.0),)


def test_memory_has_the_allocator_and_the_remainder_beside_the_probe() -> None:
    gib = 1 << 30
    allocator = metrics(mem_allocator=30.0 * gib, mem_remainder=7.0 * gib)
    allocator["mem_allocator"] = changed(allocator["mem_allocator"], inputs={"device_id": "0000:05:00.0"})
    run = made_up(figures=allocator)
    used = of_cards(run, lambda _: Bucket(1.0, 0.0, 37.0 * gib, 37.0 * gib))
    chart = drawn(run, "Memory in use", used_bytes=used)
    limits = {series.name: series.points[0][1] for series in chart.series if series.is_limit}
    assert limits == {"most that the allocator reserved, 0000:05:00.0": 30.0, "capacity": 64.0}
    assert "remainder 7.0 GiB" in chart.remark


def test_ranks_of_a_large_run_that_were_not_read_are_said() -> None:
    steps = StepCourse({"compute": (Bucket(1.0, 1.0, 1.0, 1.0),)}, (), [])
    assert "steps of 1 of the 16 ranks were read" in drawn(made_up(plan=job(nodes=2)), "Throughput", steps).remark


def test_figures_over_ranks_are_points_around_their_median() -> None:
    peaks = {f"0/0000:{slot:02x}:00.0": float(30 + slot) * (1 << 30) for slot in range(8)}
    figures = metrics()
    figures["mem_used"] = changed(figures["mem_used"], inputs={"per_device": peaks})
    chart = titled(blocks_of(made_up(figures=figures), courses={}), "Device memory used, by rank")
    assert chart.marks and [y for _, y in chart.series[0].points] == [30 + slot for slot in range(8)]
    assert chart.covers is not None and chart.covers[0] < 33.5 < chart.covers[1]


# --- configuration and caveats --------------------------------------------------------------------------------------


def test_changed_values_name_their_layer_and_the_vendor_s_are_called_so() -> None:
    run = made_up(set_values={"training.learning_rate": 1.5e-4}, tuning={"training.batch_size": 96})
    table = titled(blocks_of(run, courses={}), "Values that differ from the profile")
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows == [
        ["training.batch_size (bs)", "96", "tuning metax (the vendor's tuning)"],
        ["training.learning_rate (lr)", "1.5e-4", "--set"],
    ]


def test_marks_and_missing_values_are_listed_with_what_they_mean() -> None:
    blocks = blocks_of(recorded("distilbert"))
    heads = [head.title for block in blocks if isinstance(block, doc.Table) for head in block.heads]
    assert "meaning" in heads
    (table,) = [block for block in blocks if isinstance(block, doc.Table) and block.heads[0].title == "code"]
    (meaning,) = [row[2].text for row in table.rows if row[0] == doc.Text("unknown_peak", strong=True)]
    assert "the peak of another card is never used" in meaning


# --- what is refused ------------------------------------------------------------------------------------------------


def test_without_the_library_that_draws_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without charts needs none."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert "text" in to_html(doc.Document("en", (doc.Paragraph("text"),)))
    chart = doc.Chart("Title", "x", "y", (doc.ChartSeries("a", ((0.0, 1.0),)),))
    with pytest.raises(MissingPart, match=r"install 'flagperf\[html\]'"):
        to_html(doc.Document("en", (chart,)))


def test_pages_of_large_runs_stay_small() -> None:
    """400 nodes of 8 devices."""
    run = made_up(plan=job(nodes=400))
    cards = {
        (node.index, device.id): tuple(Bucket(float(x), 1.0, 2.0, 3.0) for x in range(120))
        for node in run.run.job.nodes
        for device in node.devices
    }
    steps = StepCourse({"compute": cards[0, "0000:00:00.0"]}, cards[0, "0000:00:00.0"], [0.1] * 100_000)
    figures = metrics()
    spread = {f"{node}/{device}": float(slot) for slot, (node, device) in enumerate(cards)}
    figures["mem_used"] = changed(figures["mem_used"], inputs={"per_device": spread})
    run = msgspec.structs.replace(run, run=msgspec.structs.replace(run.run, metrics=tuple(figures.values())))
    course = RunCourse((rank(),), steps, {"used_bytes": cards, "power_watts": cards}, 400)
    page = to_html(web_document([run], "en", courses={run.run.id: course}))
    assert len(page) < 300_000


def test_every_recorded_bundle_has_a_page() -> None:
    for path in sorted(FOLDER.iterdir()):
        run = read_bundle(path)
        assert to_html(web_document([run], "en", courses=courses(run), allow_simulated=True)).endswith("</html>\n")

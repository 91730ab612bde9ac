"""The tables of a run that replayed recorded operators, and what a recording run says of itself."""

import msgspec

from flagperf.api import RecordedRanks, Recording
from flagperf.bundle.run_record import RecordedOperators, RecordedRun
from flagperf.messages import message
from flagperf.metrics.rows import MeasuredRow
from flagperf.report.document import Paragraph, Table
from flagperf.report.sections.operator_tables import operator_blocks, replayed_blocks
from flagperf.report.wording import recorded_operators
from run_builders import make_run

RECORDING = Recording(
    schema=1, run_id="20260101T000000Z-llama", case="llama", case_version=1, profile="tiny", precision="bf16",
    vendor="acme", device="A1", torch="2.9.0", parts=[RecordedRanks([0], 3, [], [])], step_seconds=0.040,
)  # fmt: skip


def row(operator, per_step, median, arguments="f32[8]", **more):
    labels = {"operator": operator, "arguments": arguments, "per_step": per_step}
    return MeasuredRow("recorded", labels, "s", median=median, **more)


def replayed_run(*rows, vendor="cpu", device="Some CPU"):
    run = make_run("r")
    recording = msgspec.structs.replace(RECORDING, vendor=vendor, device=device)
    return msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, recording=recording), rows=rows)


def texts(table):
    return [[getattr(cell, "text", getattr(cell, "reason", "")) for cell in line] for line in table.rows]


def test_what_costs_most_comes_first_with_its_share_and_what_the_roofline_allows():
    view = MeasuredRow("not timed", {"operator": "aten::t", "per_step": "7"}, "s", problem="a view")
    run = replayed_run(
        row("aten::add", "5", 0.001, roofline=0.0005, share=0.5, work={"bytes": 1000}),
        row("aten::mm", "3", 0.005, roofline=0.001, share=0.2, work={"flops": 1_000_000_000}),
        view,
    )
    origin, sums, operators, calls, others = replayed_blocks(run, "en")
    assert isinstance(origin, Paragraph) and "cpu Some CPU" in origin.text and "3 steps of rank 0 of 1" in origin.text
    assert "the 8 timed calls of a step take 20 ms here" in sums.text
    assert "took 40 ms there, of which this is 50.0%" in sums.text
    assert "would take 5.5 ms" in sums.text
    assert texts(operators) == [
        ["aten::mm", "1", "3", "5 ms", "15 ms", "75.0%", "20.0%", "3 ms"],
        ["aten::add", "1", "5", "1 ms", "5 ms", "25.0%", "50.0%", "2.5 ms"],
    ]
    assert texts(calls)[0] == ["aten::mm", "f32[8]", "3", "5 ms", "15 ms", "75.0%", "0.2 TFLOPS", "20.0%", "3 ms"]
    assert texts(others) == [["aten::t", "", "7", "a view"]]
    assert list(operator_blocks(run, "en")) == [], "the usual table of rows would repeat it"


def test_the_step_of_another_card_is_not_what_this_is_a_share_of():
    run = replayed_run(row("aten::add", "5", 0.1), vendor="acme", device="A1")
    origin, sums, *_ = replayed_blocks(run, "en")
    assert "acme A1" in origin.text
    assert "the recorded step took 40 ms there, on another card" in sums.text
    assert "%" not in sums.text


def test_a_call_that_found_its_inputs_in_a_cache_has_no_share_and_says_why():
    hot = row("aten::add", "5", 0.001, roofline=0.0005, bound_by="bytes", facts={"cache": "hot"})
    _, _, operators, *_ = replayed_blocks(replayed_run(hot), "en")
    cell = operators.rows[0][-2]
    assert cell.reason == "not_applicable"
    assert str(cell.detail) == "inputs were in a cache, so the bandwidth of the memory does not limit it"


def test_calls_that_failed_are_listed_with_why_and_peaks_that_are_unknown_are_said():
    bad = row("aten::mm", "1", None, status="out_of_memory", problem="6 GiB are missing")
    blocks = list(replayed_blocks(replayed_run(row("aten::add", "5", 0.001), bad), "en"))
    assert "no roofline" in blocks[1].text
    assert len(blocks[2].heads) == 6, "no columns of the roofline"
    assert isinstance(blocks[-1], Table) and texts(blocks[-1])[0][-1] == "out_of_memory: 6 GiB are missing"


def test_a_run_that_replays_nothing_has_none_of_it():
    assert list(replayed_blocks(make_run("r"), "en")) == []


def test_a_recording_run_says_which_steps_were_not_measured_or_why_there_is_none():
    def said(found, lang="en"):
        run = msgspec.structs.replace(make_run("r"), recorded=found)
        return list(recorded_operators(RecordedRun(run, (), "r"), lang))

    assert said(None) == []
    assert said(RecordedOperators(3, 100, 2000, 1))[0].startswith("the last 3 steps were not measured")
    early = RecordedOperators(problem=message("recording.ended_early", steps=0, done=5, planned=9))
    assert "ended after 5 of the 9" in said(early)[0]
    assert "9" in said(early, "zh")[0]

"""From readings of several cards to the memory cell of a page and its note."""

import pytest
from report_builders import GIB, changed, device, job, metrics, recorded
from report_parsing import performance, value
from report_terminal import facts, table_rows

from flagperf.api import LaunchCommand, Reading
from flagperf.bundle.run_record import Ending
from flagperf.event_files import EventFile
from flagperf.events import (
    Clock,
    ProbeFailed,
    ProbeStarted,
    Sampled,
    SpanBegan,
    WorkerEnded,
    WorkersEnded,
    WorkersLaunched,
    WorkerStarted,
)
from flagperf.messages import message
from flagperf.metrics.entry import Record
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf_publish.pages.layouts import page

SECOND = 1_000_000_000
CLOCK = Clock("node0", "boot", 1, "2025-01-02T03:04:05+00:00")
NUM_CARDS = 8


def worker(rank: int, mapping: str = "pci") -> EventFile:
    started = WorkerStarted(
        0,
        1,
        CLOCK,
        rank=rank,
        local_rank=rank,
        node_index=0,
        world_size=NUM_CARDS,
        device_id=device(rank).id,
        mapping=mapping,
        timing="device_events",
    )
    ended = WorkerEnded(60 * SECOND, "succeeded", allocator_peak_reserved_bytes=20 * GIB)
    return EventFile((started, SpanBegan(10 * SECOND, "training"), ended))


def sample(second: int, gib: float, fullest: int, fullest_gib: float, baseline: bool = False) -> Sampled:
    """All cards use `gib`, one of them something else."""
    used = [fullest_gib if slot == fullest else gib for slot in range(NUM_CARDS)]
    readings = tuple(Reading(device(slot).id, round(each * GIB), 64 * GIB) for slot, each in enumerate(used))
    return Sampled(second * SECOND, readings, baseline)


SAMPLES = (
    sample(0, 0.5, 5, 1.5, baseline=True),
    sample(12, 21, 5, 21),
    sample(22, 30, 5, 31),
    sample(32, 30, 5, 47.5),
    sample(42, 30, 5, 33),
    sample(52, 22, 5, 22),
)
"""Memory moves, and peaks in the middle of the run on card 5."""


def run_of(*more, mapping="pci"):
    probe = ProbeStarted(0, 1, CLOCK, node_index=0, vendor="metax", probe="mx-smi", interval_seconds=10.0)
    launched = WorkersLaunched(0, 0, 5 * SECOND, LaunchCommand(("torchrun",)))
    parent = EventFile((launched, WorkersEnded(1, 0, 60 * SECOND, 0)))
    record = Record(
        parent,
        tuple(worker(rank, mapping) for rank in range(NUM_CARDS)),
        (EventFile((probe, *SAMPLES, *more)),),
    )
    plan = job(devices=NUM_CARDS)
    measured = {metric.name: metric for metric in compute_metrics(Observed(plan, recorded().run.manifest, record))}
    figures = {name: metric for name, metric in measured.items() if name.startswith("mem_")}
    return recorded(plan=plan, figures={**metrics(), **figures})


def test_the_page_shows_the_peak_of_the_card_that_had_it():
    text = page([run_of()], "en")
    assert performance(text)[0]["mem"] == "47.5/64.0"
    assert (
        "memory read by probe mx-smi, 5 samples, interval 10 s or longer, largest gap 10 s, "
        "peak on device 0000:05:00.0 22.0 s after training began"
    ) in text


def test_what_was_there_before_and_beside_the_allocator_is_on_the_page():
    text = page([run_of()], "en")
    for note in ("1.5 GiB before the workers started", "allocator 20.0 GiB, remainder 10.0 GiB on device 0000:00:00.0"):
        assert f"  - {note}\n" in text
    assert "1.5 GiB before the workers started" in facts(run_of())["mem"][1]


@pytest.mark.parametrize("status", ["failed", "out_of_memory", "interrupted", "timed_out"])
def test_page_table_and_summary_agree_on_the_memory_of_a_run_that_did_not_finish(status):
    observed = {name: figure for name, figure in metrics().items() if name.startswith("mem_")}
    run = recorded(ending=Ending(status, "why"), figures=observed)
    text, (row, _) = page([run], "en"), table_rows(run, recorded("other"))
    assert performance(text)[0]["mem"] == "37.0/64.0"
    assert row["mem"] == "37.0/64.0"
    assert facts(run)["mem"][0] == "37.0/64.0 GiB"
    assert "memory read by probe mx-smi" in text


def test_a_run_that_failed_before_its_memory_was_read_has_its_ending_in_that_cell():
    run = recorded(ending=Ending("failed", "rank 0"), figures={})
    text = page([run], "en")
    row = performance(text)[0]
    assert (value(row["mem"])[0], row["mem"]) == ("/", row["e2e_time"])
    assert "memory read by probe" not in text


def test_a_dead_probe_is_said_in_place_of_the_number():
    why = message("probe.died", how=message("exit.signal", signal="SIGBUS"))
    run = run_of(ProbeFailed(40 * SECOND, str(why), why))
    for lang, words in (
        ("en", "the probe ended early (killed by SIGBUS)"),
        ("zh", "节点0：探针提前结束（被SIGBUS终止）"),
    ):
        text = page([run], lang)
        assert value(performance(text)[0]["mem"])[0] == "/"
        assert words in text
        assert "47.5" not in text


@pytest.mark.parametrize(("lang", "words"), [("en", "not verified"), ("zh", "未能确认")])
def test_a_worker_without_a_known_card_marks_the_cell(lang, words):
    text = page([run_of(mapping="none")], lang)
    cell = performance(text)[0]["mem"]
    assert (value(cell)[0], len(value(cell)[1])) == ("47.5/64.0", 1)
    assert f"unverified_mapping{' (' if lang == 'en' else '（'}{words}" in text


def test_every_mark_of_the_memory_has_its_words_on_the_page():
    figures = metrics()
    marks = ("over_capacity", "telemetry_gap", "implausible_utilisation")
    figures["mem_used"] = changed(figures["mem_used"], marks=marks)
    for lang in ("en", "zh"):
        text = page([recorded(figures=figures)], lang)
        assert all(f"{mark}{' (' if lang == 'en' else '（'}" in text for mark in marks)

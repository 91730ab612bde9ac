from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.api import Reading
from flagperf.errors import BadInput
from flagperf.event_files import EventWriter, decode_events, read_events, this_clock
from flagperf.events import RunStarted, Sampled, SpanBegan, StepFinished, WorkerEnded

STEP = StepFinished(t_ns=30, step=1, began_ns=10, compute_ns=20, wait_ns=5, work={"samples": 4, "tokens": 40}, loss=0.5)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    events = (
        SpanBegan(1, "training", planned_steps=7),
        STEP,
        Sampled(40, (Reading("cpu:0", used_bytes=0, total_bytes=9),)),
    )
    with EventWriter(tmp_path / "events" / "rank-00000.jsonl") as writer:
        writer.write(*events)
    read = read_events(tmp_path / "events" / "rank-00000.jsonl")
    assert read.events == events
    assert not read.torn


def test_a_reading_of_zero_bytes_is_not_an_absent_one(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with EventWriter(path) as writer:
        writer.write(Sampled(1, (Reading("a", used_bytes=0), Reading("b", missing={"used_bytes": "not supported"}))))
    (sampled,) = read_events(path).events
    assert isinstance(sampled, Sampled)
    assert [reading.used_bytes for reading in sampled.readings] == [0, None]


def test_a_torn_last_line_is_noted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    with EventWriter(path) as writer:
        writer.write(SpanBegan(1, "training"), STEP)
    path.write_bytes(path.read_bytes()[:-10])
    read = read_events(path)
    assert read.torn
    assert read.events == (SpanBegan(1, "training"),)


def test_every_write_reaches_the_file_at_once(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "rank.jsonl")
    writer.write(STEP)
    assert read_events(tmp_path / "rank.jsonl").events == (STEP,)
    writer.close()


@pytest.mark.parametrize("kept", [slice(1, None), slice(0, 1), slice(0, 0)])
def test_a_file_that_lost_events_while_it_was_written_is_refused(tmp_path: Path, kept: slice) -> None:
    path = tmp_path / "rank-00000.jsonl"
    with EventWriter(path) as writer:
        writer.write(STEP)
        writer.write(STEP, STEP)
        lines = path.read_bytes().splitlines(keepends=True)
        assert lines[kept] != lines
        path.write_bytes(b"".join(lines[kept]))
        writer.end(WorkerEnded(40, "succeeded"))
    with pytest.raises(BadInput, match=r"rank-00000.jsonl: \d events come before the last one, 3 were written"):
        read_events(path)


def test_a_bad_line_in_the_middle_is_an_error_with_its_number() -> None:
    good = b'{"type":"span_began","t_ns":1,"name":"training"}\n'
    with pytest.raises(BadInput, match=r"rank\.jsonl: line 2"):
        decode_events([good, b"nonsense\n", good], "rank.jsonl")


def test_an_event_of_an_unknown_kind_is_an_error_even_at_the_end() -> None:
    with pytest.raises(BadInput, match="line 1"):
        decode_events([b'{"type":"from_the_future","t_ns":1}\n'], "rank.jsonl")


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "parent.jsonl") as writer:
        writer.write(RunStarted(1, schema=99, clock=this_clock()))
    with pytest.raises(BadInput, match="event schema 99"):
        read_events(tmp_path / "parent.jsonl")


def test_an_empty_file_has_no_events() -> None:
    assert decode_events([], "rank.jsonl").events == ()


def test_a_nan_loss_is_no_number_and_still_reads(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    with EventWriter(path) as writer:
        writer.write(
            StepFinished(30, step=1, began_ns=10, compute_ns=20, wait_ns=5, work={"samples": 4}, loss=float("nan"))
        )
    (step,) = read_events(path).events
    assert isinstance(step, StepFinished)
    assert step.loss is None


def test_the_clock_names_the_machine() -> None:
    clock = this_clock()
    assert clock.host and clock.boot_id and clock.pid
    assert clock.wall.endswith("+00:00")

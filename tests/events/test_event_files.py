from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flagperf.api import Reading
from flagperf.errors import BadInput
from flagperf.event_files import EventFile, EventWriter, decode_events, read_events, this_clock
from flagperf.events import Event, RunStarted, Sampled, SpanBegan, StepFinished, WorkerEnded

STEP = StepFinished(t_ns=30, step=1, began_ns=10, compute_ns=20, wait_ns=5, work={"samples": 4, "tokens": 40}, loss=0.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events" / "rank-00000.jsonl"


def written(path: Path, *events: Event) -> EventFile:
    with EventWriter(path) as writer:
        writer.write(*events)
        return read_events(path)  # every write reaches the file at once


def test_what_is_written_is_read_again(path: Path) -> None:
    readings = Reading("cpu:0", used_bytes=0, total_bytes=9), Reading("b", missing={"used_bytes": "not supported"})
    events = SpanBegan(1, "training", planned_steps=7), STEP, Sampled(40, readings)
    found = written(path, *events)
    assert (found.events, found.torn) == (events, False)
    assert [reading.used_bytes for reading in found.events[2].readings] == [0, None]  # zero is not absent


def test_a_torn_last_line_is_noted_and_the_rest_is_read(path: Path) -> None:
    written(path, SpanBegan(1, "training"), STEP)
    path.write_bytes(path.read_bytes()[:-10])
    found = read_events(path)
    assert (found.events, found.torn) == ((SpanBegan(1, "training"),), True)


@pytest.mark.parametrize("kept", [slice(1, None), slice(0, 1), slice(0, 0)])
def test_a_file_that_lost_events_while_it_was_written_is_refused(path: Path, kept: slice) -> None:
    with EventWriter(path) as writer:
        writer.write(STEP)
        writer.write(STEP, STEP)
        lines = path.read_bytes().splitlines(keepends=True)
        assert lines[kept] != lines
        path.write_bytes(b"".join(lines[kept]))
        writer.end(WorkerEnded(40, "succeeded"))
    with pytest.raises(BadInput, match=r"rank-00000.jsonl: \d events come before the last one, 3 were written"):
        read_events(path)


GOOD = b'{"type":"span_began","t_ns":1,"name":"training"}\n'


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([GOOD, b"nonsense\n", GOOD], r"rank\.jsonl: line 2"),
        ([b'{"type":"from_the_future","t_ns":1}\n'], "line 1"),  # even at the end
    ],
)
def test_a_line_that_is_no_event_is_an_error_with_its_number(lines: list[bytes], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        decode_events(lines, "rank.jsonl")
    assert decode_events([], "rank.jsonl").events == ()


def test_a_file_of_another_schema_is_refused(path: Path) -> None:
    with pytest.raises(BadInput, match="event schema 99"):
        written(path, RunStarted(1, schema=99, clock=this_clock()))


def test_a_nan_loss_is_no_number_and_still_reads(path: Path) -> None:
    (step,) = written(path, msgspec.structs.replace(STEP, loss=float("nan"))).events
    assert isinstance(step, StepFinished) and step.loss is None


def test_the_clock_names_the_machine() -> None:
    clock = this_clock()
    assert clock.host and clock.boot_id and clock.pid
    assert clock.wall.endswith("+00:00")

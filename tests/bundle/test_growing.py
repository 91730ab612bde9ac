from __future__ import annotations

from pathlib import Path

from flagperf.bundle.live_run import GrowingFile, RankSteps
from flagperf.event_files import EventWriter
from flagperf.events import SpanBegan, StepFinished


def step(number: int) -> StepFinished:
    return StepFinished(number * 10**9, number, (number - 1) * 10**9, 10**8, 0, {"samples": 4}, loss=1 / number)


def test_a_torn_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    with EventWriter(path) as writer:
        writer.write(step(1), step(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    file = GrowingFile(path)
    assert [event.step for event in file.new_events()] == [1]
    assert file.new_events() == ()
    path.write_bytes(whole)
    assert [event.step for event in file.new_events()] == [2]


def test_whoever_comes_late_reads_how_a_long_file_begins_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    with EventWriter(path) as writer:
        writer.write(SpanBegan(0, "training", planned_steps=9000), *(step(number) for number in range(1, 8001)))
        rank = RankSteps(path, most_bytes=20_000)
        num_events = len(rank.new_events())
        assert num_events < 1000
        assert (rank.planned_steps, rank.num_done, rank.phase) == (9000, 8000, "training")
        assert rank.seconds_per_step() == 1.0
        assert rank.seconds_left(since_last=0.5) == 999.5
        writer.write(step(8001))
        assert [event.step for event in rank.new_events()] == [8001]


def test_what_was_added_beyond_the_limit_is_skipped_without_its_torn_first_line(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    with EventWriter(path) as writer:
        writer.write(step(1))
        file = GrowingFile(path, most_bytes=1000)
        file.new_events()
        writer.write(*(step(number) for number in range(2, 500)))
    numbers = [event.step for event in file.new_events()]
    assert numbers == list(range(numbers[0], 500))
    assert 1 < len(numbers) < 20

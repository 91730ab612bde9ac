"""What a node reports of its run while it goes on, from its growing files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from flagperf.api import Device, Reading
from flagperf.bundle.live_run import GrowingFile, ProgressFollower, RankSteps
from flagperf.event_files import EventWriter
from flagperf.events import (
    AnyEvent,
    Clock,
    EvaluationAdvanced,
    ProbeFailed,
    ProbeStarted,
    RowMeasured,
    Sampled,
    SpanBegan,
    SpanEnded,
    StepFinished,
)
from flagperf.spec.protocol import EvaluationProgress, Progress, RankPace

SECOND = 1_000_000_000
CLOCK = Clock("h", "boot", 1, "2024-01-01T00:00:00+00:00")
PROBE = ProbeStarted(0, 1, CLOCK, node_index=0, vendor="acme", probe="smi", interval_seconds=1.0)

SetTime = Callable[[float], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> SetTime:
    """Sets the clock, which stands at 0."""
    now = [0]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] = round(seconds * SECOND)

    return move


def step(number: int, loss: float | None = 0.5, samples: int = 4, end: float | None = None) -> StepFinished:
    t_ns = round((number if end is None else end) * SECOND)
    return StepFinished(t_ns, step=number, began_ns=0, compute_ns=1, wait_ns=0, work={"samples": samples}, loss=loss)


def follow(folder: Path, *ranks: list[AnyEvent], samples: list[AnyEvent] | None = None) -> ProgressFollower:
    """A node whose ranks 4 and up, and whose probe, have written these events."""
    files = [folder / f"rank-{index}.jsonl" for index in range(len(ranks))]
    for file, events in zip([*files, folder / "node.jsonl"], [*ranks, samples or []], strict=True):
        with EventWriter(file) as writer:
            writer.write(*events)
    return ProgressFollower(files or [folder / "none.jsonl"], folder / "node.jsonl", first_rank=4)


def seen(follower: ProgressFollower) -> Progress:
    progress = follower.poll()
    assert progress is not None
    return progress


def test_progress_is_over_all_ranks_and_the_last_steps(tmp_path: Path, at: SetTime) -> None:
    at(3)
    began = SpanBegan(0, "training", planned_steps=10)
    readings = Reading("a", used_bytes=5), Reading("b", used_bytes=7), Reading("c")
    follower = follow(
        tmp_path,
        [began, step(1), step(2), step(3, loss=0.25)],
        [began, step(1), step(2)],
        samples=[Sampled(1, (Reading("a", used_bytes=99),), baseline=True), Sampled(2, readings)],
    )
    progress = seen(follower)
    assert (progress.step, progress.planned_steps, progress.loss, progress.used_bytes) == (3, 10, 0.25, 7)
    assert progress.samples_per_second == 8.0  # 4 a second on each of 2 ranks; one has written less
    assert (progress.seconds_left, progress.phase) == (7.0, "training")
    assert follower.poll() is None


def test_a_rank_that_leaves_counting_and_loss_to_another_hides_neither(tmp_path: Path) -> None:
    silent = [step(number, loss=None, samples=0) for number in (1, 2, 3)]
    progress = seen(follow(tmp_path, silent, [step(number, loss=0.75, samples=6) for number in (1, 2, 3)]))
    assert (progress.step, progress.samples_per_second, progress.loss) == (3, 6.0, 0.75)


def test_at_the_edges_of_the_loop_there_is_nothing_to_extrapolate(tmp_path: Path) -> None:
    for name in ("first", "last"):
        (tmp_path / name).mkdir()
    first = seen(follow(tmp_path / "first", [SpanBegan(0, "training"), step(1)]))
    assert (first.samples_per_second, first.seconds_left) == (None, None)
    began = SpanBegan(0, "training", planned_steps=2)
    last = seen(follow(tmp_path / "last", [began, step(1), step(2), SpanEnded(2 * SECOND, "training", 0, 2)]))
    assert (last.step, last.seconds_left, last.phase) == (2, None, "finishing")


def test_a_case_without_steps_is_as_far_as_its_rows(tmp_path: Path, at: SetTime) -> None:
    at(4)
    rows = [RowMeasured(end * SECOND, "gemm", {}, "s", (1.0,)) for end in (2, 4)]
    progress = seen(follow(tmp_path, [SpanBegan(0, "base", planned_steps=5), *rows]))
    assert (progress.step, progress.planned_steps, progress.seconds_left) == (2, 5, 6.0)


def test_an_evaluation_is_shown_until_it_ends(tmp_path: Path) -> None:
    follower = follow(tmp_path, [EvaluationAdvanced(3 * SECOND, began_ns=2 * SECOND, rows=0, planned_rows=10)])
    assert seen(follower).evaluation is None
    with EventWriter(tmp_path / "rank-0.jsonl") as writer:
        writer.write(EvaluationAdvanced(4 * SECOND, began_ns=2 * SECOND, rows=4, planned_rows=10))
        found = seen(follower).evaluation
        assert found == EvaluationProgress(rows=4, planned_rows=10, rows_per_second=2.0)
        assert found.seconds_left == 3.0
        writer.write(SpanEnded(5 * SECOND, "evaluation", began_ns=2 * SECOND, step=0))
        assert seen(follower).evaluation is None


@pytest.mark.parametrize(("interval_seconds", "silent_seconds"), [(0.5, 10), (2.0, 30)])
def test_memory_is_hidden_while_the_probe_is_silent(
    tmp_path: Path, at: SetTime, interval_seconds: float, silent_seconds: int
) -> None:
    started = msgspec.structs.replace(PROBE, interval_seconds=interval_seconds)
    follower = follow(tmp_path, samples=[started, Sampled(0, (Reading("a", used_bytes=7),))])
    assert seen(follower).used_bytes == 7
    at(silent_seconds)
    assert follower.poll() is None
    at(silent_seconds + 0.1)
    assert seen(follower).used_bytes is None
    assert follower.poll() is None
    with EventWriter(tmp_path / "node.jsonl") as writer:
        writer.write(Sampled(round((silent_seconds + 0.1) * SECOND), (Reading("a", used_bytes=8),)))
        assert seen(follower).used_bytes == 8
        writer.write(ProbeFailed((silent_seconds + 1) * SECOND, "killed"))
        assert seen(follower).used_bytes is None


@pytest.mark.parametrize(("used", "shown"), [((7, 0), 7), ((0, 0), None), ((0, 5), 5), ((0, None), None)])
def test_workers_that_are_not_there_have_no_memory_rather_than_none_in_use(
    tmp_path: Path, at: SetTime, used: tuple[int | None, ...], shown: int | None
) -> None:
    readings = tuple(Reading(f"cpu:{slot}", used_bytes=each) for slot, each in enumerate(used))
    before = Sampled(0, (Reading("cpu:0", used_bytes=1),))
    assert seen(follow(tmp_path, [step(1)], samples=[before, Sampled(0, readings)])).used_bytes == shown


@pytest.mark.parametrize(
    ("board_figures", "watts", "shown"),
    [((), (300.0, 300.5, 9.0), 609.5), (("power_watts",), (300.0, 300.5, 9.0), 309.5), ((), (300.0, None, 9.0), None)],
)
def test_power_is_that_of_all_cards_and_a_board_counts_once(
    tmp_path: Path, at: SetTime, board_figures: tuple[str, ...], watts: tuple[float | None, ...], shown: float | None
) -> None:
    """Where the power of one card was not read, there is no sum."""
    boards = {"a": "first", "b": "first", "c": ""}
    cards = [Device(name, "Card A", "A", 0, board=board) for name, board in boards.items()]
    sampled = Sampled(0, tuple(Reading(name, power_watts=each) for name, each in zip(boards, watts, strict=True)))
    follow(tmp_path, [step(1)], samples=[msgspec.structs.replace(PROBE, board_figures=board_figures), sampled])
    follower = ProgressFollower([tmp_path / "rank-0.jsonl"], tmp_path / "node.jsonl", cards)
    assert seen(follower).power_watts == shown


AHEAD = {1: 0.0, 2: 1.0, 3: 2.0, 4: 60.0}  # an evaluation after step 3, which the others have before them


@pytest.mark.parametrize(
    ("ends", "median", "slowest"),
    [
        ([AHEAD, {1: 0.0, 2: 1.0, 3: 3.0}, {2: 5.0, 3: 6.0}], 1.0, RankPace(5, 2.0)),
        ([{81: 0.0, 82: 1.0}, {11: 0.0, 12: 3.0}], 2.0, RankPace(5, 3.0)),  # far apart: by their last steps
        ([{1: 0.0, 2: 1.0}, {1: 0.0}], None, None),
    ],
)
def test_the_slowest_rank_is_the_one_whose_same_steps_took_longest(
    tmp_path: Path, ends: list[dict[int, float]], median: float | None, slowest: RankPace | None
) -> None:
    progress = seen(follow(tmp_path, *([step(number, end=end) for number, end in each.items()] for each in ends)))
    assert (progress.median_step_seconds, progress.slowest) == (median, slowest)


# --- growing files ----------------------------------------------------------------------------------------------------


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

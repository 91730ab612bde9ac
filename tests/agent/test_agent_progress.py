from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flagperf.api import Device, Reading
from flagperf.bundle.live_run import GrowingFile, ProgressFollower
from flagperf.event_files import EventWriter
from flagperf.events import (
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


def step(number: int, loss: float | None = 0.5, samples: int = 4) -> StepFinished:
    return StepFinished(
        number * SECOND, step=number, began_ns=0, compute_ns=1, wait_ns=0, work={"samples": samples}, loss=loss
    )


def test_a_line_that_is_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    growing = GrowingFile(path)
    assert growing.new_events() == ()
    with path.open("wb", buffering=0) as file:
        file.write(b'{"type":"span_began","t_ns":1,"name":"training"}\n{"type":"span')
        assert growing.new_events() == (SpanBegan(1, "training"),)
        assert growing.new_events() == ()
        file.write(b'_ended","t_ns":2,"name":"training","began_ns":1,"step":0}\n')
        assert growing.new_events() == (SpanEnded(2, "training", 1, 0),)


def test_progress_is_over_all_ranks_and_the_last_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 3 * SECOND)
    events, other, samples = tmp_path / "rank.jsonl", tmp_path / "other.jsonl", tmp_path / "node.jsonl"
    follower = ProgressFollower([events, other], samples)
    assert follower.poll() is None
    with EventWriter(events) as writer:
        writer.write(SpanBegan(0, "training", planned_steps=10), step(1), step(2), step(3, loss=0.25))
    with EventWriter(other) as writer:
        writer.write(SpanBegan(0, "training", planned_steps=10), step(1), step(2))
    with EventWriter(samples) as writer:
        writer.write(Sampled(1, (Reading("a", used_bytes=99),), baseline=True))
        writer.write(Sampled(2, (Reading("a", used_bytes=5), Reading("b", used_bytes=7), Reading("c"))))
    progress = follower.poll()
    assert progress is not None
    assert (progress.step, progress.planned_steps, progress.loss, progress.used_bytes) == (3, 10, 0.25, 7)
    assert progress.samples_per_second == 8.0  # 4 a second on each of 2 ranks, of which one has written less
    assert progress.seconds_left == 7.0
    assert progress.phase == "training"
    assert follower.poll() is None


def test_a_rank_that_leaves_counting_and_loss_to_another_hides_neither(tmp_path: Path) -> None:
    silent, counting = tmp_path / "rank-0.jsonl", tmp_path / "rank-1.jsonl"
    follower = ProgressFollower([silent, counting], tmp_path / "none.jsonl")
    with EventWriter(silent) as writer:
        writer.write(*(step(number, loss=None, samples=0) for number in (1, 2, 3)))
    with EventWriter(counting) as writer:
        writer.write(*(step(number, loss=0.75, samples=6) for number in (1, 2, 3)))
    progress = follower.poll()
    assert progress is not None
    assert (progress.step, progress.samples_per_second, progress.loss) == (3, 6.0, 0.75)


def probe_started(interval_seconds: float) -> ProbeStarted:
    clock = Clock("h", "boot", 1, "2024-01-01T00:00:00+00:00")
    return ProbeStarted(0, 1, clock, node_index=0, vendor="acme", probe="smi", interval_seconds=interval_seconds)


@pytest.mark.parametrize(("interval_seconds", "silent_seconds"), [(0.5, 10), (2.0, 30)])
def test_memory_is_not_shown_any_more_while_the_probe_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval_seconds: float, silent_seconds: int
) -> None:
    now = [0]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])
    samples = tmp_path / "node.jsonl"
    follower = ProgressFollower([tmp_path / "none.jsonl"], samples)
    with EventWriter(samples) as writer:
        writer.write(probe_started(interval_seconds), Sampled(0, (Reading("a", used_bytes=7),)))
        assert used(follower.poll()) == 7
        now[0] = silent_seconds * SECOND
        assert follower.poll() is None
        now[0] += 1
        assert used(follower.poll()) is None
        assert follower.poll() is None
        writer.write(Sampled(now[0], (Reading("a", used_bytes=8),)))
        assert used(follower.poll()) == 8
        writer.write(ProbeFailed(now[0], "killed"))
        assert used(follower.poll()) is None


def test_workers_that_are_not_there_have_no_memory_rather_than_none_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 0)
    samples = tmp_path / "node.jsonl"
    follower = ProgressFollower([tmp_path / "none.jsonl"], samples)
    with EventWriter(samples) as writer:
        for readings, shown in (((7, 0), 7), ((0, 0), None), ((0, 5), 5), ((0, None), None)):
            writer.write(
                Sampled(0, tuple(Reading(f"cpu:{slot}", used_bytes=each) for slot, each in enumerate(readings)))
            )
            assert used(follower.poll()) == shown


def used(progress: Progress | None) -> int | None:
    assert progress is not None
    return progress.used_bytes


def test_an_evaluation_is_shown_until_it_ends(tmp_path: Path) -> None:
    events = tmp_path / "rank.jsonl"
    follower = ProgressFollower([events, tmp_path / "other.jsonl"], tmp_path / "none.jsonl")
    with EventWriter(events) as writer:
        writer.write(EvaluationAdvanced(3 * SECOND, began_ns=2 * SECOND, rows=0, planned_rows=10))
        assert evaluation(follower.poll()) is None
        writer.write(EvaluationAdvanced(4 * SECOND, began_ns=2 * SECOND, rows=4, planned_rows=10))
        found = evaluation(follower.poll())
        assert found == EvaluationProgress(rows=4, planned_rows=10, rows_per_second=2.0)
        assert found.seconds_left == 3.0
        writer.write(SpanEnded(5 * SECOND, "evaluation", began_ns=2 * SECOND, step=0))
        assert evaluation(follower.poll()) is None


def evaluation(progress: Progress | None) -> EvaluationProgress | None:
    assert progress is not None
    return progress.evaluation


def test_after_training_no_steps_are_left(tmp_path: Path) -> None:
    events = tmp_path / "rank.jsonl"
    follower = ProgressFollower([events], tmp_path / "none.jsonl")
    with EventWriter(events) as writer:
        writer.write(
            SpanBegan(0, "training", planned_steps=2), step(1), step(2), SpanEnded(2 * SECOND, "training", 0, 2)
        )
    progress = follower.poll()
    assert progress is not None
    assert (progress.step, progress.seconds_left, progress.phase) == (2, None, "finishing")


def test_before_the_second_step_there_is_no_throughput(tmp_path: Path) -> None:
    events = tmp_path / "rank.jsonl"
    follower = ProgressFollower([events], tmp_path / "none.jsonl")
    with EventWriter(events) as writer:
        writer.write(SpanBegan(0, "training"), step(1))
    progress = follower.poll()
    assert progress is not None
    assert progress.samples_per_second is None
    assert progress.seconds_left is None


def power(follower: ProgressFollower) -> float | None:
    progress = follower.poll()
    assert progress is not None
    return progress.power_watts


def test_power_is_that_of_all_cards_and_a_board_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 0)
    cards = [Device(name, "Card A", "A", 0, board=board) for name, board in (("a", "first"), ("b", "first"), ("c", ""))]
    whole, shared = tmp_path / "whole.jsonl", tmp_path / "shared.jsonl"
    sampled = Sampled(
        0, (Reading("a", power_watts=300.0), Reading("b", power_watts=300.5), Reading("c", power_watts=9))
    )
    with EventWriter(whole) as writer:
        writer.write(probe_started(1.0), sampled)
    with EventWriter(shared) as writer:
        writer.write(msgspec.structs.replace(probe_started(1.0), board_figures=("power_watts",)), sampled)
    assert power(ProgressFollower([tmp_path / "none.jsonl"], whole, cards)) == 609.5
    assert power(ProgressFollower([tmp_path / "none.jsonl"], shared, cards)) == 309.5


def test_power_that_was_not_read_of_every_card_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 0)
    samples = tmp_path / "node.jsonl"
    with EventWriter(samples) as writer:
        writer.write(Sampled(0, (Reading("a", power_watts=300.0), Reading("b", used_bytes=1))))
    assert power(ProgressFollower([tmp_path / "none.jsonl"], samples)) is None


def paces(tmp_path: Path, *ends: dict[int, float]) -> tuple[float | None, RankPace | None]:
    """Of a node whose ranks 4 and up finished these steps at these seconds."""
    files = [tmp_path / f"rank-{index}.jsonl" for index in range(len(ends))]
    for file, of_rank in zip(files, ends, strict=True):
        with EventWriter(file) as writer:
            for number, seconds in of_rank.items():
                writer.write(msgspec.structs.replace(step(number), t_ns=round(seconds * SECOND)))
    progress = ProgressFollower(files, tmp_path / "none.jsonl", first_rank=4).poll()
    assert progress is not None
    return progress.median_step_seconds, progress.slowest


def test_the_slowest_rank_is_the_one_whose_same_steps_took_longest(tmp_path: Path) -> None:
    ahead = {1: 0.0, 2: 1.0, 3: 2.0, 4: 60.0}  # an evaluation after step 3, which the others have before them
    assert paces(tmp_path, ahead, {1: 0.0, 2: 1.0, 3: 3.0}, {2: 5.0, 3: 6.0}) == (1.0, RankPace(5, 2.0))


def test_ranks_that_are_far_apart_are_compared_by_their_last_steps(tmp_path: Path) -> None:
    assert paces(tmp_path, {81: 0.0, 82: 1.0}, {11: 0.0, 12: 3.0}) == (2.0, RankPace(5, 3.0))


def test_without_two_steps_of_every_rank_none_is_the_slowest(tmp_path: Path) -> None:
    assert paces(tmp_path, {1: 0.0, 2: 1.0}, {1: 0.0}) == (None, None)


def test_a_case_without_steps_is_as_far_as_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 4 * SECOND)
    events = tmp_path / "rank.jsonl"
    with EventWriter(events) as writer:
        rows = [RowMeasured(end, "gemm", {}, "s", (1.0,)) for end in (2 * SECOND, 4 * SECOND)]
        writer.write(SpanBegan(0, "base", planned_steps=5), *rows)
    progress = ProgressFollower([events], tmp_path / "none.jsonl").poll()
    assert progress is not None
    assert (progress.step, progress.planned_steps, progress.seconds_left) == (2, 5, 6.0)

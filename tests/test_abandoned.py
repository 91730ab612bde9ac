"""Runs whose command is gone, wherever it was when it was killed. With real commands: tests/faults, tests/clusters."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from flagperf import version
from flagperf.bundle.bundle import planned_fields, read_bundle, write_run
from flagperf.bundle.liveness import alone, at_work, holding, this_pid_namespace
from flagperf.bundle.run_record import Ending
from flagperf.bundle.verify import verify_bundle
from flagperf.cli import run_cli
from flagperf.errors import BadInput, BundleInUse
from flagperf.event_files import EventWriter, read_events, this_clock
from flagperf.events import Clock, Event, RunEnded, RunStarted
from flagperf.messages import message
from flagperf.run import check_gone, end_abandoned, end_run, measure
from test_verify import make_bundle

PARENT, MANIFEST = "events/parent.jsonl", "MANIFEST"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Four steps are measured, and the command was killed while it wrote a line."""
    return unended(tmp_path)


def unended(folder: Path, clock: Clock | None = None, locked: bool = True) -> Path:
    path = make_bundle(folder)
    (path / MANIFEST).unlink()
    begun = msgspec.structs.replace(
        read_bundle(path).run, ending=None, metrics=(), commands=(), flagperf_version=version()
    )
    write_run(path, begun)
    started, *others = read_events(path / PARENT).events
    assert isinstance(started, RunStarted)
    changes = {
        "clock": clock or this_clock(),
        "planned": planned_fields(path),
        "locked": locked,
        "pid_namespace": this_pid_namespace(),
        "t_ns": time.monotonic_ns(),
    }
    started = msgspec.structs.replace(started, **changes)
    rewrite(path, [started, *others[:-2]])
    with (path / PARENT).open("ab") as file:
        file.write(b'{"type":"workers_ended","t_ns"')
    return path


def rewrite(path: Path, events: Sequence[Event]) -> None:
    (path / PARENT).unlink()
    with EventWriter(path / PARENT) as writer:
        writer.write(*events)


def test_what_was_measured_is_kept_and_the_reason_recorded(bundle: Path) -> None:
    with (bundle / "events/rank-00000.jsonl").open("rb+") as file:
        file.truncate(file.seek(0, 2) - 30)
    (bundle / ".run.json.abc").write_text("{")
    recorded = end_abandoned(bundle, "Slurm's job 7 was cancelled")
    assert recorded is not None and recorded.run.ending is not None
    ending, memory = recorded.run.ending, recorded.run.metric("mem_used")
    assert ending.status == "failed" and ending.exit_code == 3
    assert ending.reason.endswith("ended without a word: Slurm's job 7 was cancelled")
    assert memory is not None and memory.value == 1 << 30
    (ended,) = (event for event in read_events(bundle / PARENT).events if isinstance(event, RunEnded))
    assert ended.by is not None and ended.by.host == this_clock().host
    assert verify_bundle(bundle).problems == () and not (bundle / ".run.json.abc").exists()


@pytest.mark.parametrize("moment", ["ending recorded", "measured", "sealed"])
def test_a_command_that_was_killed_while_it_ended_keeps_its_own_ending(bundle: Path, moment: str) -> None:
    run, own = read_bundle(bundle).run, Ending("failed", "rank 0: gone", message("tool.words", words="rank 0: gone"))
    content = (bundle / PARENT).read_bytes()
    (bundle / PARENT).write_bytes(content[: content.rfind(b"\n") + 1])
    with EventWriter(bundle / PARENT) as writer:
        writer.write(RunEnded(1, own.status, own.reason, own.message))
    before = (bundle / PARENT).read_bytes()
    end_run(bundle, run, own, measure(bundle, run))
    (bundle / MANIFEST).unlink()
    if moment != "sealed":
        (bundle / PARENT).write_bytes(before)
    if moment == "ending recorded":
        write_run(bundle, run)
    recorded = end_abandoned(bundle, "why")
    assert recorded is not None and recorded.run.ending == own
    assert verify_bundle(bundle).problems == ()


def test_a_file_that_was_changed_after_the_seal_is_still_found(bundle: Path) -> None:
    end_abandoned(bundle)
    (bundle / MANIFEST).unlink()
    rank = bundle / "events/rank-00000.jsonl"
    rank.write_text(rank.read_text().replace('"step":2', '"step":20'))
    end_abandoned(bundle)
    assert any("rank-00000.jsonl" in problem for problem in verify_bundle(bundle).problems)


def test_a_damaged_file_leaves_an_ending_without_figures(bundle: Path) -> None:
    (bundle / "events/rank-00000.jsonl").write_text("nonsense\n")
    recorded = end_abandoned(bundle)
    assert recorded is not None and recorded.run.ending is not None and recorded.run.ending.status == "failed"
    throughput = recorded.run.metric("p_core")
    assert throughput is not None and throughput.value is None


def test_a_run_whose_command_or_agent_is_at_work_is_left_alone(bundle: Path) -> None:
    before = (bundle / PARENT).read_bytes()
    for somebody in (holding, at_work):
        with somebody(bundle), pytest.raises(BundleInUse, match="is still at work"):
            end_abandoned(bundle)
    with alone(bundle), pytest.raises(BundleInUse):  # somebody else ends it in this moment
        end_abandoned(bundle)
    assert (bundle / PARENT).read_bytes() == before and not (bundle / MANIFEST).exists()
    with alone(bundle):  # a lock that outlived its machine, on a server
        assert end_abandoned(bundle, said_gone=True)


@pytest.mark.parametrize(
    "clock", [Clock("elsewhere", "other", 1, ""), Clock(this_clock().host, "other", 1, "")], ids=["host", "boot"]
)
def test_what_cannot_be_proven_is_refused_with_what_to_do(tmp_path: Path, clock: Clock) -> None:
    bundle = unended(tmp_path, clock)
    with pytest.raises(BadInput, match=f"began on {clock.host}.* `flagperf runs end {bundle} --gone`"):
        check_gone(bundle)
    assert not (bundle / MANIFEST).exists()


def test_a_command_without_a_lock_is_looked_for_by_its_number(tmp_path: Path) -> None:
    bundle = unended(tmp_path, locked=False)
    with pytest.raises(BundleInUse, match="is still at work"):
        check_gone(bundle)


def test_a_run_that_had_not_begun_leaves_nothing(bundle: Path) -> None:
    (bundle / PARENT).write_bytes(b'{"type":"run_sta')
    with pytest.raises(BadInput, match="may be about to begin"):
        check_gone(bundle)
    with pytest.raises(BadInput, match="lacks its first event"):  # there are steps: somebody has removed the events
        end_abandoned(bundle)
    (bundle / "events/rank-00000.jsonl").unlink()
    assert end_abandoned(bundle) is None and not bundle.exists()


def test_a_run_of_another_version_is_not_ended_by_this_one(bundle: Path) -> None:
    run = read_bundle(bundle).run
    write_run(bundle, msgspec.structs.replace(run, flagperf_version="9.9"))
    with pytest.raises(BadInput, match=r"begun by flagperf 9\.9"):
        end_abandoned(bundle)


def test_nothing_is_read_or_written_through_a_link(bundle: Path, tmp_path: Path) -> None:
    (bundle / PARENT).rename(tmp_path / "elsewhere")
    (bundle / PARENT).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="is a link"):
        end_abandoned(bundle)


def test_the_command_ends_a_run_once(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with holding(bundle):
        assert run_cli(["runs", "end", str(bundle)]) == 2
    assert "is in use" in capsys.readouterr().err
    assert run_cli(["runs", "end", str(bundle)]) == 0
    assert "failed: the command of the run (process" in capsys.readouterr().out
    sealed = (bundle / PARENT).read_bytes()
    assert run_cli(["runs", "end", str(bundle), "--gone", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["ending"]["status"] == "failed" and "has ended before" in printed.err
    assert (bundle / PARENT).read_bytes() == sealed

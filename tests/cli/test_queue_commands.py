"""Runs in a cluster's queue, which is made up. With a real one: tests/clusters/test_slurm_runs.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flagperf.api import Allocation, Cluster, JobState
from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.liveness import Begun, alone, at_work
from flagperf.bundle.verify import verify_bundle
from flagperf.cli import queue, run_cli
from flagperf.cli.queue import Submitted, arguments, finishing, note_run
from flagperf.errors import BadInput, NodeFailed, ToolFailed
from flagperf.spec.job import RunSpec
from test_abandoned import unended


class Queue(Cluster):
    """Answers what it is given, the last answer again and again."""

    name = "queue"

    def __init__(self, *states: JobState) -> None:
        self.states = [*states]
        self.num_asked = 0
        self.when_asked: Callable[[int], object] = lambda _number: None

    def submit(self, command: Sequence[str], num_nodes: int, options: Any, log: str) -> str:
        self.command = list(command)
        return "7"

    def allocate(self, num_nodes: int, options: Any) -> AbstractContextManager[Allocation]:
        raise NotImplementedError

    def job_state(self, job: str) -> JobState:
        self.num_asked += 1
        self.when_asked(self.num_asked)
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


class Plugins:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def cluster(self, _name: str) -> Queue:
        return self._queue


ENDED = JobState("ended", "the job ended, because one of its nodes failed")
FORGOTTEN = JobState("unknown", "the queue knows no job 7 any more")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return unended(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, bundle: Path) -> Path:
    path = tmp_path / "detached/20260101T000000Z-demo-abc123"
    path.mkdir(parents=True)
    (path / "job.json").write_bytes(msgspec.json.encode(Submitted("queue", "7", "demo", "")))
    (path / "started").touch()
    (path / "log").write_text("step 4\n")
    note_run(str(path), bundle.name)
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Queue]:
    for name in ("POLL_SECONDS", "STATE_SECONDS"):
        monkeypatch.setattr(queue, name, 0.01)
    monkeypatch.setattr(queue, "FORGOTTEN_SECONDS", 1e6)

    def answers(*states: JobState) -> Queue:
        cluster = Queue(*states)
        monkeypatch.setattr(queue, "load_plugins", lambda: Plugins(cluster))
        return cluster

    return answers


def attach(folder: Path) -> int:
    return run_cli(["runs", "attach", "7", "--runs-dir", str(folder.parent.parent)])


def test_a_number_is_that_of_a_job_and_never_the_beginning_of_a_year(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "detached/20260101T000001Z-demo-fff000"
    other.mkdir()
    (other / "job.json").write_bytes(msgspec.json.encode(Submitted("queue", "8", "demo", "")))
    assert queue._find("7", tmp_path)[0] == folder
    assert queue._find("20260101T000001Z", tmp_path)[0] == other
    for word in ("2", "2026", ""):
        with pytest.raises(BadInput, match=f"no detached run '{word}' in .*; there are 7, 8"):
            queue._find(word, tmp_path)
    with pytest.raises(BadInput, match="'20260101T' is the beginning of several detached runs"):
        queue._find("20260101T", tmp_path)


def test_a_cluster_that_does_not_answer_is_asked_again(folder: Path, bundle: Path, asked: Callable[..., Queue]) -> None:
    cluster = asked(ENDED)

    def is_silent_once(number: int) -> None:
        if number == 1:
            raise ToolFailed("squeue did not end within 5 s")

    cluster.when_asked = is_silent_once
    assert attach(folder) == 3 and cluster.num_asked == 2


def test_the_run_of_a_job_that_is_over_is_ended_once(
    folder: Path, bundle: Path, asked: Callable[..., Queue], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = asked(JobState("running", "is running"), ENDED)
    assert attach(folder) == 3
    printed = capsys.readouterr()
    assert printed.out == "step 4\n"
    assert f"run {bundle.name} ended as failed: the command of the run" in printed.err and ENDED.reason in printed.err
    assert verify_bundle(bundle).problems == ()
    before = (bundle / "MANIFEST").read_bytes()
    assert attach(folder) == 3 and capsys.readouterr() == printed
    assert cluster.num_asked == 2 and (bundle / "MANIFEST").read_bytes() == before


def test_a_command_that_the_cluster_has_only_lost_sight_of_is_followed(
    folder: Path, bundle: Path, asked: Callable[..., Queue]
) -> None:
    """It holds the bundle's lock, and says itself how it ended."""
    cluster = asked(ENDED)
    cluster.when_asked = lambda number: number == 3 and (folder / "finished.json").write_text('{"exit_code":0}')
    with at_work(bundle):
        assert attach(folder) == 0
    assert cluster.num_asked == 3 and not (bundle / "MANIFEST").exists()


def test_a_lock_that_stays_is_not_waited_for_for_ever(
    folder: Path,
    bundle: Path,
    asked: Callable[..., Queue],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked(ENDED)
    monkeypatch.setattr(queue, "LOCK_SECONDS", 0.0)
    with alone(bundle):
        assert attach(folder) == 3
    assert f"flagperf runs end {bundle} --gone" in capsys.readouterr().err
    assert not (bundle / "MANIFEST").exists()


def test_a_job_that_the_cluster_does_not_know_is_over_when_nothing_is_written_any_more(
    folder: Path, bundle: Path, asked: Callable[..., Queue]
) -> None:
    cluster = asked(FORGOTTEN)
    cluster.when_asked = lambda number: number == 2 and make_old(folder, bundle)
    assert attach(folder) == 3
    assert cluster.num_asked == 2 and verify_bundle(bundle).problems == ()


def make_old(*folders: Path) -> None:
    for path in (path for folder in folders for path in folder.rglob("*")):
        os.utime(path, (0, 0))


@pytest.mark.parametrize("begun", [None, Begun("20260101T000000Z-never-made"), Begun("../..")])
def test_a_job_that_began_no_run_says_what_became_of_it(
    folder: Path, bundle: Path, asked: Callable[..., Queue], capsys: pytest.CaptureFixture[str], begun: Begun | None
) -> None:
    asked(JobState("queued", "is in the queue (PENDING, Resources)"), JobState("ended", "was cancelled"))
    for name in ("begun.json", "log"):
        (folder / name).unlink()
    if begun is not None:
        note_run(str(folder), begun.run_id)
    assert attach(folder) == 3
    assert begun is not None or capsys.readouterr().err.splitlines() == [
        "is in the queue (PENDING, Resources)",
        "flagperf: was cancelled",
    ]
    assert not (bundle / "MANIFEST").exists()


def test_a_job_that_is_started_again_ends_the_run_of_its_first_start(folder: Path, bundle: Path) -> None:
    with pytest.raises(NodeFailed, match="it is not started again"), finishing(str(folder)):
        raise AssertionError
    ending = read_bundle(bundle).run.ending
    assert ending is not None and "put back into" in ending.reason
    assert verify_bundle(bundle).problems == () and '"exit_code":3' in (folder / "finished.json").read_text()


def test_the_command_line_of_a_request_says_all_that_differs_from_the_defaults() -> None:
    spec = RunSpec(
        "distilbert",
        vendor="cpu",
        nodes=2,
        set=("training.max_steps=3", "training.warmup_steps=1"),
        timeout_seconds=60.0,
        accept_low_peaks=True,
        cluster="slurm",
        cluster_options=("time=5",),
        container_options=("python=/venv/bin/python",),
    )
    words = "distilbert --vendor cpu --nodes 2 --set training.max_steps=3 --set training.warmup_steps=1 --timeout 60.0"
    rest = "--accept-low-peaks --cluster slurm --cluster-option time=5 --container-option python=/venv/bin/python"
    assert arguments(spec) == [*words.split(), *rest.split()]
    assert arguments(RunSpec("glm")) == ["glm"]
    assert {field.name for field in msgspec.structs.fields(RunSpec)} >= {"container", "interface"}


def test_a_run_in_the_queue_keeps_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queue, "given_cluster_options", lambda *_: {})
    monkeypatch.setattr(queue, "cluster_options", lambda *_: None)
    cluster = Queue()
    plugins: Any = Plugins(cluster)
    content = '[cases.distilbert]\n"training.max_steps" = 6\n'
    for text in (content, ""):
        if text:
            Path("flagperf.toml").write_text(text)
        else:
            Path("flagperf.toml").unlink()
        queue.submit(RunSpec("distilbert", cluster="cluster"), plugins, tmp_path / "runs")
        config = Path(cluster.command[cluster.command.index("--config") + 1])
        Path("flagperf.toml").write_text(content.replace("6", "9"))
        assert config.read_text() == text and config.is_relative_to(tmp_path / "runs/detached")


def test_a_run_that_the_cluster_starts_again_is_refused(tmp_path: Path) -> None:
    """What the first start left is kept; where it was killed before it could say how it ended, that is said."""
    folder = tmp_path / "runs/detached/one"
    folder.mkdir(parents=True)
    with finishing(str(folder)) as code:
        code.append(130)
    with (
        pytest.raises(NodeFailed, match=f"it is not started again; .* is kept in {tmp_path}/runs"),
        finishing(str(folder)),
    ):
        raise AssertionError
    assert (folder / "finished.json").read_text() == '{"exit_code":130}'
    (folder / "finished.json").unlink()
    with pytest.raises(NodeFailed), finishing(str(folder)):
        raise AssertionError
    assert (folder / "finished.json").read_text() == '{"exit_code":3}'

"""Runs in a cluster's queue, as far as they need no queue. With a real one: tests/clusters/test_slurm_runs.py."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flagperf.api import Allocation, Cluster
from flagperf.cli import queue, run_cli
from flagperf.cli.queue import arguments, finishing
from flagperf.errors import NodeFailed
from flagperf.spec.job import RunSpec


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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run distilbert --detach", "cluster local has no queue"),
        ("run distilbert --detach --cluster slurm --set training.foo=1", "training.foo"),
        ("run distilbert --detach --cluster slurm --container image", "--container needs --vendor"),
        ("run distilbert --detach --cluster slurm --nodes 200000", "at most 100,000"),
        ("runs attach 5", "no detached run '5'"),
        ("runs cancel 5", "no detached run '5'"),
    ],
)
def test_what_cannot_be_detached_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(command.split()) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


class Queue(Cluster):
    name = "queue"

    def __init__(self) -> None:
        self.command: list[str] = []

    def allocate(self, num_nodes: int, options: Any) -> AbstractContextManager[Allocation]:
        raise NotImplementedError

    def submit(self, command: Sequence[str], num_nodes: int, options: Any, log: str) -> str:
        self.command = list(command)
        return "7"


class QueuePlugins:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def cluster(self, _name: str) -> Queue:
        return self.queue


def test_a_run_in_the_queue_keeps_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queue, "given_cluster_options", lambda *_: {})
    monkeypatch.setattr(queue, "cluster_options", lambda *_: None)
    cluster = Queue()
    plugins: Any = QueuePlugins(cluster)
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

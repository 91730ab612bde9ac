"""States that a real Slurm is not easily brought into; the rest is in tests/clusters/test_slurm_command.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from flagperf.api import JobState, Node
from flagperf.builtin.slurm import SlurmAllocation, SlurmCluster, SlurmOptions
from flagperf.errors import BadInput, MissingPart, ToolFailed

ALLOCATION = SlurmAllocation("7", [Node("n1")], [], None)


class Commands:
    """Slurm's commands, each a script of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("srun")
        self.say("squeue", "RUNNING|1:00:00|n1|None")
        self.say("sinfo", "allocated|none")

    def say(self, name: str, text: str) -> None:
        self.write(name, f"echo '{text}'")

    def write(self, name: str, *lines: str) -> None:
        script = self.folder / name
        script.write_text("\n".join(["#!/bin/sh", *lines]))
        script.chmod(0o755)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return Commands(tmp_path)


@pytest.mark.parametrize(
    ("squeue", "phase", "sentence"),
    [
        ("PENDING|1:00:00|n1|Priority", "queued", "was put back into the queue (PENDING, Priority)"),
        ("REQUEUE_HOLD|1:00:00|n1|JobHeldUser", "queued", "was put back into the queue (REQUEUE_HOLD, JobHeldUser)"),
        ("TIMEOUT|1:00:00|n1|TimeLimit", "ended", "reached its time limit of 1:00:00"),
        ("PREEMPTED|1:00:00|n1|None", "ended", "was preempted by another job"),
        ("NODE_FAIL|1:00:00|n1|NodeDown", "ended", "ended, because one of its nodes failed"),
        ("OUT_OF_MEMORY|1:00:00|n1|OutOfMemory", "ended", "ran out of memory"),
        ("SUSPENDED|1:00:00|n1|None", "running", "is suspended"),
        ("NEW_STATE|1:00:00|n1|None", "ended", "is in the state NEW_STATE"),
    ],
)
def test_what_became_of_a_job_in_one_sentence(commands: Commands, squeue: str, phase: str, sentence: str) -> None:
    commands.say("squeue", squeue)
    assert ALLOCATION.explain(Node("n1")) == f"Slurm's job 7 {sentence}"
    assert SlurmCluster().job_state("7").phase == phase


@pytest.mark.parametrize(
    ("sinfo", "sentence"),
    [
        ("allocated|none", ""),
        ("draining|later", ""),
        ("allocated*|none", "Slurm has node n1 as allocated*"),
        ("down*|Not responding", "Slurm has node n1 as down* (Not responding)"),
        ("failing|fan\nfailing|fan", "Slurm has node n1 as failing (fan)"),
        ("", ""),
    ],
)
def test_what_is_wrong_with_a_node(commands: Commands, sinfo: str, sentence: str) -> None:
    commands.say("sinfo", sinfo)
    assert ALLOCATION.explain(Node("n1")) == sentence


@pytest.mark.parametrize(
    ("squeue", "sinfo", "phase"),
    [
        ("NODE_FAIL|1:00:00|n1|NodeDown", "down*|fan", "ended"),
        ("COMPLETING|1:00:00|n1|NodeDown", "down*|fan", "ended"),
        ("COMPLETING|1:00:00|n1|NodeDown", "completing*|none", "running"),  # another node failed; this one is late
        ("COMPLETING|1:00:00|n1|None", "down*|fan", "running"),
        ("RUNNING|1:00:00|n1|None", "allocated*|none", "running"),
    ],
)
def test_a_command_is_gone_when_slurm_ended_the_job_and_has_its_node_as_down(
    commands: Commands, squeue: str, sinfo: str, phase: str
) -> None:
    commands.say("squeue", squeue)
    commands.say("sinfo", sinfo)
    state = SlurmCluster().job_state("7")
    assert state.phase == phase
    said = "Slurm's job 7 ended, because one of its nodes failed; Slurm has node n1 as down* (fan)"
    assert (state.reason == said) == (phase == "ended")


def test_a_controller_that_does_not_answer(commands: Commands) -> None:
    said = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    commands.write("squeue", f"echo '{said}' >&2", "exit 1")
    assert ALLOCATION.explain(Node("n1")) == f"Slurm does not say what became of job 7: {said}"
    with pytest.raises(ToolFailed, match="Unable to contact slurm controller"):
        SlurmCluster().job_state("7")
    commands.write("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2", "exit 1")
    assert SlurmCluster().job_state("7") == JobState("unknown", "Slurm knows no job 7 any more")


def test_options_become_words_of_the_request(commands: Commands) -> None:
    commands.write("sbatch", 'printf "%s\\n" "$@" > "$0.words"', "echo '12;cluster'")
    options = SlurmOptions(
        partition="a b; $(c)",
        account="team",
        gres="gpu:8",
        constraint="ib&hdr",
        reservation="r",
        nodelist="n[1-2]",
        arguments=("--qos=high",),
    )
    assert SlurmCluster().submit(["true"], 2, options, "/runs/100%.log") == "12"
    assert (commands.folder / "sbatch.words").read_text().splitlines()[:-1] == [
        "--qos=high",
        "--job-name=flagperf",
        "--nodes=2",
        "--exclusive",
        "--mem=0",
        "--partition=a b; $(c)",
        "--account=team",
        "--gres=gpu:8",
        "--time=60",
        "--constraint=ib&hdr",
        "--reservation=r",
        "--nodelist=n[1-2]",
        "--parsable",
        "--no-requeue",
        "--open-mode=append",
        "--output=/runs/100%%.log",
    ]
    SlurmCluster().submit(["true"], 1, SlurmOptions(exclusive=False, gres="none"), "log")
    words = (commands.folder / "sbatch.words").read_text().splitlines()[:-1]
    assert words == [
        "--job-name=flagperf",
        "--nodes=1",
        "--time=60",
        "--parsable",
        "--no-requeue",
        "--open-mode=append",
        "--output=log",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arguments": ("sh",)}, "option arguments of cluster slurm: 'sh' is not of the form --name=value or --name"),
        ({"arguments": ("--qos", "high")}, "'high' is not of the form"),
        ({"step_arguments": ("--",)}, "option step_arguments of cluster slurm: '--' is not of the form"),
        ({"partition": "a\nb"}, "option partition of cluster slurm: 'a\\\\nb' has a control character"),
        ({"arguments": ("--comment=a\0b",)}, "option arguments of cluster slurm: .* has a control character"),
        ({"python": "venv/bin/python"}, "neither an absolute path nor the name of a command"),
    ],
)
def test_wrong_options_are_refused(commands: Commands, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        SlurmCluster().allocate(1, SlurmOptions(**options))
    with pytest.raises(BadInput, match=message):
        SlurmCluster().submit(["true"], 1, SlurmOptions(**options), "log")


def test_a_machine_without_slurm_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPart, match="there is no srun on PATH: flagperf has to be started where Slurm"):
        SlurmCluster().allocate(1, SlurmOptions())


@pytest.mark.parametrize("job", ["", "-1", "7 8", "--user=root", "٧"])
def test_what_is_no_job_is_refused(job: str) -> None:
    for ask in (SlurmCluster().job_state, SlurmCluster().cancel):
        with pytest.raises(BadInput, match="is not the number of a Slurm job"):
            ask(job)


def test_a_cluster_without_a_queue_says_so() -> None:
    from flagperf.builtin.ssh import SshCluster, SshOptions

    cluster = SshCluster()
    for ask in (
        lambda: cluster.submit(["true"], 1, SshOptions(), "log"),
        lambda: cluster.job_state("7"),
        lambda: cluster.cancel("7"),
    ):
        with pytest.raises(BadInput, match="cluster ssh has no queue"):
            ask()

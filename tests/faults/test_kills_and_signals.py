"""kill -9 of each process and signals, at several moments: an ending, no process and no temporary folder left."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from e2e_flagperf import agent_process, bundle_of, is_agent, metric, processes_of, read_run, said, wait_for_step
from faulty_flagperf import RUN, agents_of, assert_nothing_left, ended, first_always, flagperf, start

SAMPLING = ("--sample-seconds", "0.1")


def mode(word: str) -> tuple[str, ...]:
    return ("--set", f"fault.mode={word}")


def worker_of(bundle: Path) -> psutil.Process:
    """The first process of the run that is a worker."""
    return next(process for process in processes_of(bundle) if "flagperf.worker" in process.cmdline())


def wait_for_agents(cwd: Path, process: Any, count: int) -> None:
    """Until the command has started so many processes at once. The agent has a watchdog, and a fork for each verb."""
    deadline = time.monotonic() + 600
    while len(agents_of(cwd)) < count + 1 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("verb", first_always("serve", "run"))
def test_a_killed_agent_leaves_nothing_whatever_its_processes_do(tmp_path: Path, verb: str) -> None:
    """The probe is stuck in a call of the vendor's, the worker ignores SIGTERM, its child is in another session."""
    process = start(tmp_path, *RUN, *SAMPLING, *mode("stubborn"), fault="sample:loop")
    bundle = wait_for_step(tmp_path, process)
    while len(processes_of(bundle)) < 3:  # the worker, its child, the probe
        time.sleep(0.05)
    assert list((tmp_path / "tmp").iterdir())
    agent_process(process, verb).kill()
    done = ended(process)
    assert (done.code, said(read_run(bundle))[0]) == (3, "failed")
    assert "node 0 was lost: " in done.stderr
    assert_nothing_left(tmp_path, bundle, at_once=True)
    assert "the agent left behind: " in (bundle / "logs" / "agent-000.log").read_text()
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


@pytest.mark.full
@pytest.mark.parametrize("helper", ["watchdog", "launcher"])
def test_a_killed_agent_leaves_nothing_although_none_can_help(tmp_path: Path, helper: str) -> None:
    """Its watchdog is killed with it, or its launcher, here the worker itself, stands still."""
    process = start(tmp_path, *RUN, *mode("stubborn" if helper == "watchdog" else "hang"))
    bundle = wait_for_step(tmp_path, process)
    if helper == "watchdog":
        (watchdog,) = [each for each in agents_of(tmp_path) if each.name() == "flagperf-watch"]
        watchdog.kill()
    else:
        worker_of(bundle).suspend()
    agent_process(process, "serve").kill()
    assert ended(process).code == 3
    assert_nothing_left(tmp_path, bundle, at_once=True)


def agent_of(cwd: Path, process: Any, verb: str) -> psutil.Process:
    """As soon as it is there."""
    deadline = time.monotonic() + 600
    while not (agents := [each for each in agents_of(cwd) if is_agent(each, verb)]):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    return agents[0]


@pytest.mark.full
def test_an_agent_that_is_killed_while_an_adapter_hangs_in_it(tmp_path: Path) -> None:
    process = start(tmp_path, *RUN, fault="presence:loop")
    wait_for_agents(tmp_path, process, 2)  # the agent, and its fork that asks the adapter
    agent_of(tmp_path, process, "describe").kill()
    done = ended(process)
    assert (done.code, done.stdout) == (3, "")
    assert "the agent on node 0 (127.0.0.1) failed: killed by SIGKILL" in done.stderr
    assert_nothing_left(tmp_path, tmp_path)


@pytest.mark.full
def test_a_probe_that_is_killed_before_it_is_ready_costs_its_figures_alone(tmp_path: Path) -> None:
    process = start(tmp_path, *RUN, fault="available:loop")
    agent_of(tmp_path, process, "probe").kill()
    assert ended(process).code == 0
    used = metric(read_run(bundle_of(tmp_path)), "mem_used")
    assert "the probe ended early (killed by SIGKILL" in used["detail"]


@pytest.mark.full
@pytest.mark.parametrize("num_processes", [3, 4])
def test_an_agent_that_is_killed_before_there_are_workers(tmp_path: Path, num_processes: int) -> None:
    """As soon as the agent of the run is there, and once it has started its probe."""
    process = start(tmp_path, *RUN, *mode("hang"))
    agent = agent_of(tmp_path, process, "run")
    wait_for_agents(tmp_path, process, num_processes)
    agent.kill()
    assert ended(process).code == 3
    bundle = bundle_of(tmp_path)
    assert said(read_run(bundle))[0] == "failed" and (bundle / "MANIFEST").exists()
    assert_nothing_left(tmp_path, bundle)


@pytest.mark.parametrize("with_agent", first_always(False, True))
def test_a_killed_command_takes_all_with_it(tmp_path: Path, with_agent: bool) -> None:
    """Also where its agent is killed in the same moment, while the launcher is stopped. Its run can then be ended."""
    process = start(tmp_path, *RUN, *SAMPLING, *mode("stubborn"))
    bundle = wait_for_step(tmp_path, process)
    refused = flagperf(tmp_path, "runs", "end", bundle.name)
    assert refused.code == 2 and "is in use" in refused.stderr
    agent = agent_process(process, "serve")
    if with_agent:
        worker_of(bundle).suspend()
        agent.kill()
    process.kill()
    process.communicate(timeout=300)
    assert_nothing_left(tmp_path, bundle)
    done = flagperf(tmp_path, "runs", "end", bundle.name)
    assert done.code == 0 and "failed: the command of the run (process " in done.stdout, done.stderr
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


def test_a_killed_worker_ends_the_run_and_its_child(tmp_path: Path) -> None:
    process = start(tmp_path, *RUN, *mode("stubborn"))
    bundle = wait_for_step(tmp_path, process)
    worker_of(bundle).kill()
    assert ended(process).code == 3
    assert said(read_run(bundle))[1].startswith("rank 0: killed by SIGKILL")
    assert_nothing_left(tmp_path, bundle, at_once=True)


@pytest.mark.parametrize(
    ("number", "num_processes"),
    first_always((signal.SIGINT, 3), (signal.SIGTERM, 0), (signal.SIGHUP, 1), (signal.SIGTERM, 5)),
)
def test_a_signal_at_any_moment_leaves_a_bundle_with_an_ending_or_none(
    tmp_path: Path, number: int, num_processes: int
) -> None:
    process = start(tmp_path, *RUN, *mode("hang"))
    wait_for_agents(tmp_path, process, num_processes)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=300)
    assert "Traceback" not in stderr
    bundles = [*tmp_path.glob("runs/*")]
    if process.returncode == -number:  # before it had set its handlers, nothing was started
        assert not bundles and not stdout
    else:
        assert process.returncode == 130
    for bundle in bundles:
        assert said(read_run(bundle))[0] == "interrupted" and (bundle / "MANIFEST").exists()
        assert flagperf(tmp_path, "runs", "verify", bundle.name).code == 0
    assert_nothing_left(tmp_path, bundles[0] if bundles else tmp_path)

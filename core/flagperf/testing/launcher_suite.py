"""Tests that every launcher must pass: one worker per card, the right cards visible to it, no orphan processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil
import pytest

from flagperf.agent.leftovers import MARKER, stop_workers
from flagperf.agent.node_environment import node_machine
from flagperf.agent.node_run import worker_environment
from flagperf.api import Device, DeviceBackend, LaunchCommand, Launcher, NodeShare
from flagperf.fleet.containers import Container, container_command
from flagperf.processes import die_with_parent
from flagperf.testing.suite import Suite, skip_without_torch

CARDS = tuple(
    Device(f"GPU-{index}", "model", "model", index, uuid=f"GPU-{index}", pci_address=f"0000:0{index}:00.0")
    for index in range(2)
)
WORKER = "flagperf.testing.rank"
PATIENCE_SECONDS = 120.0


class LauncherSuite(Suite):
    """Tests for a launcher."""

    # --- offline ----------------------------------------------------------------------------------------------------

    def test_visibility_variables_name_exactly_the_cards_of_the_run(
        self, launcher: Launcher, backend: DeviceBackend
    ) -> None:
        environment = _command(launcher).environment(dict.fromkeys(backend.visibility_variables, "7"))
        expected = ",".join(self.rig.expected_name(card) for card in CARDS)
        assert {name: environment[name] for name in backend.visibility_variables} == dict.fromkeys(
            backend.visibility_variables, expected
        )

    def test_every_setting_has_its_reason(self, launcher: Launcher) -> None:
        assert all(setting.reason and setting.value for setting in _command(launcher).settings)

    def test_the_command_is_a_list_without_a_shell(self, launcher: Launcher) -> None:
        argv = _command(launcher).argv
        assert all(isinstance(word, str) for word in argv)
        assert Path(argv[0]).name not in ("sh", "bash", "dash") or "-c" not in argv

    def test_variables_that_must_never_be_set_do_not_reach_workers(self, launcher: Launcher) -> None:
        command = _command(launcher)
        environment = command.environment(dict.fromkeys(command.remove, "1"))
        assert not set(command.remove) & set(environment)

    def test_collectives_of_several_nodes_use_the_interface_between_them(self, launcher: Launcher) -> None:
        names = ("GLOO_SOCKET_IFNAME", *getattr(launcher, "interface_variables", ()))
        command = _command(launcher, num_nodes=2, interface="eth7")
        assert {name: command.environment({}).get(name) for name in names} == dict.fromkeys(names, "eth7")
        chosen = dict.fromkeys(names, "ib0")
        assert {name: command.environment(chosen).get(name) for name in names} == chosen

    @pytest.mark.parametrize("engine", ["podman", "docker", "apptainer"])
    def test_containers_can_have_what_the_cards_need(
        self, launcher: Launcher, engine: Literal["podman", "docker", "apptainer"]
    ) -> None:
        """Devices are absolute paths or CDI names, mounts absolute paths, and nothing asks for a privileged one."""
        needs = launcher.container_needs()
        command = container_command(Container("image", engine), needs, None, ["python3"], name="suite")
        assert not [word for word in command if "privileged" in word and "no-new-privileges" not in word]

    # --- hardware ---------------------------------------------------------------------------------------------------

    @pytest.mark.hardware
    def test_a_killed_rank_is_named(self, launcher: Launcher, tmp_path: Path) -> None:
        with _workers(launcher, tmp_path, "die") as process:
            assert process.wait(PATIENCE_SECONDS) != 0
        log = (tmp_path / "log").read_text(errors="replace")
        failures = {failure.rank: failure.description for failure in launcher.explain_failures(log)}
        assert "SIGKILL" in failures.get(1, ""), f"rank 1 was killed; the launcher blames {failures}:\n{log[-2000:]}"

    @pytest.mark.hardware
    def test_stopping_leaves_no_process(self, launcher: Launcher, tmp_path: Path) -> None:
        with _workers(launcher, tmp_path, "wait"):
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(notes := list(tmp_path.glob("rank-*.pid"))) < len(CARDS):
                assert time.monotonic() < deadline, "the workers did not start"
                time.sleep(0.1)
            pids = [int(note.read_text()) for note in notes]
            assert all(map(psutil.pid_exists, pids))
        left = []
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    left.append(pid)
                    os.kill(pid, signal.SIGKILL)
        assert not left, f"the workers {left} outlived their launcher"


def _command(launcher: Launcher, num_nodes: int = 1, interface: str = "") -> LaunchCommand:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    share = NodeShare(0, num_nodes, CARDS, "127.0.0.1", port, allowed_cores=2, host_workers=2, interface=interface)
    return launcher.command(share, sys.executable, WORKER)


@contextlib.contextmanager
def _workers(launcher: Launcher, folder: Path, task: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start workers as the agent does, and stop them so in the end."""
    command, marker = _command(launcher), f"suite-{os.getpid()}-{folder.name}"
    told = {"FLAGPERF_RANK_FOLDER": str(folder), "FLAGPERF_RANK_DOES": task, MARKER: marker}
    inherited = {**worker_environment(launcher, node_machine()), **told}
    skip_without_torch(inherited, folder)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command.argv,
            env=command.environment(inherited),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield process
    finally:
        stop_workers(process, marker)

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from flagperf.agent.describe import answer_describe as main
from flagperf.agent.describe import describe, missing_requirements
from flagperf.agent.node_checks import check
from flagperf.agent.node_run import worker_environment
from flagperf.api import LaunchCommand, Launcher, Machine, NodeShare
from flagperf.plugins.installed import load_plugins
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.protocol import CheckRequest, DescribeRequest


def test_describe_prints_facts_of_this_node() -> None:
    answer = io.BytesIO()
    assert main(b"{}", io.BytesIO(), answer) == 0
    facts = msgspec.json.decode(answer.getvalue(), type=NodeFacts)
    (cpu,) = [vendor for vendor in facts.vendors if vendor.vendor == "cpu"]
    assert cpu.presence is not None and cpu.presence.state == "present"
    assert [device.id for device in cpu.devices] == [f"cpu:{slot}" for slot in range(64)]
    assert facts.allowed_cores <= (os.cpu_count() or 1)


def test_memory_now_is_the_pool_where_slots_share_one() -> None:
    facts = describe(DescribeRequest(with_memory=True), Machine(), load_plugins())
    (cpu,) = [vendor for vendor in facts.vendors if vendor.vendor == "cpu"]
    (pool,) = cpu.readings
    assert 0 < (pool.used_bytes or 0) < (pool.total_bytes or 0)


def test_requirements_that_are_not_met_come_with_what_was_found() -> None:
    missing = missing_requirements(["click>=8", "click>=99", "no-such-distribution>=1"])
    assert str(missing[0]).startswith("click>=99 (found ")
    assert str(missing[1]) == "no-such-distribution>=1 (not installed)"
    assert len(missing) == 2


def test_the_cases_own_check_becomes_an_answer() -> None:
    manifest = load_plugins().case("distilbert").manifest
    assert manifest.check_files is not None
    answer = check(CheckRequest(manifest.check_files, "/nowhere", manifest.values))
    assert "/nowhere" in answer.problem
    assert answer.files == ()


class ScriptLauncher(Launcher):
    vendor = "acme"
    name = "script"

    def __init__(self, script: str) -> None:
        self.script = script

    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        return LaunchCommand(())

    def env_script(self, machine: Machine) -> str | None:
        return self.script


def test_the_vendors_script_is_sourced_and_its_variables_taken_over(tmp_path: Path) -> None:
    script = tmp_path / "set env.sh"
    script.write_text('echo noise\nexport ACME_HOME="/opt/acme one\ntwo"\n')
    environment = worker_environment(ScriptLauncher(str(script)), Machine())
    assert environment["ACME_HOME"] == "/opt/acme one\ntwo"
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize("text", ["return 3\n", "exit 3\n", "exit 0\n", "export ACME_HOME=/opt/acme\nexit 3\n", "if\n"])
def test_a_failing_script_is_not_passed_over(tmp_path: Path, text: str) -> None:
    script = tmp_path / "setenv.sh"
    script.write_text(text)
    with pytest.raises(subprocess.CalledProcessError):
        worker_environment(ScriptLauncher(str(script)), Machine())


def test_a_script_whose_last_test_is_false_has_done_its_work(tmp_path: Path) -> None:
    script = tmp_path / "setenv.sh"
    script.write_text("export ACME_HOME=/opt/acme\n[ -d /no/such/folder ] && export ACME_MORE=1\n")
    environment = worker_environment(ScriptLauncher(str(script)), Machine())
    assert environment["ACME_HOME"] == "/opt/acme" and "ACME_MORE" not in environment

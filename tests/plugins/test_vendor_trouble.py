"""An adapter whose driver, tool or library misbehaves: there is a message, and nothing else is hurt."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_harness import Ended, FlagPerf


def acme_in(ended: Ended) -> dict[str, Any]:
    return next(facts for facts in ended.json["vendors"] if facts["vendor"] == "acme")


def test_a_driver_that_never_answers_is_a_message_and_no_hang(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", state="hang", adapter_seconds=1)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "acme: its adapter flagperf-acme 1.2.3 failed: it did not answer in time" in ended.stderr
    assert "may hang" in ended.stderr and "--vendor cpu" in ended.stderr


def test_a_tool_that_never_answers_and_holds_our_pipe_is_no_hang_either(flagperf: FlagPerf) -> None:
    """The tool has the agent's stdout in its hands; killing the agent alone does not close that pipe."""
    ended = flagperf("devices", state="hang_in_tool", adapter_seconds=1)
    assert ended.returncode == 3
    assert "acme: its adapter flagperf-acme 1.2.3 failed: it did not answer in time" in ended.stderr
    assert "cpu:0" in ended.stdout


@pytest.mark.parametrize("state", ["hang", "crash", "partial"])
def test_the_cpu_can_be_used_beside_an_adapter_that_cannot(flagperf: FlagPerf, state: str) -> None:
    ended = flagperf("plan", "toy", "--vendor", "cpu", "--json", state=state, adapter_seconds=4)
    assert ended.returncode == 0, ended.stderr
    assert ended.json["job"]["vendor"] == "cpu"


def test_a_library_that_takes_the_agent_with_it_is_told_from_one_that_hangs(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", state="crash")
    assert "did not answer" not in ended.stderr
    assert "SIGSEGV" in ended.stderr or "signal 11" in ended.stderr
    assert ended.returncode == 2


def test_a_library_that_prints_does_not_spoil_the_answer(flagperf: FlagPerf) -> None:
    facts = acme_in(flagperf("vendors", "list", "--json", state="chatty"))
    assert facts["presence"]["state"] == "present"


def test_an_answer_that_the_contract_does_not_know_is_the_adapters_error(flagperf: FlagPerf) -> None:
    facts = acme_in(flagperf("vendors", "list", "--json", state="nonsense"))
    assert "perhaps" in facts["error"]


@pytest.mark.parametrize(("state", "code"), [("raise", 3), ("absent", 0)])
def test_an_adapter_that_fails_is_in_the_exit_code_after_everything_is_listed(
    flagperf: FlagPerf, state: str, code: int
) -> None:
    for command in (("devices",), ("vendors", "list")):
        ended = flagperf(*command, state=state)
        assert ended.returncode == code == flagperf(*command, "--json", state=state).returncode
        assert "cpu" in ended.stdout


def test_presence_without_a_card_names_the_count(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", state="no_cards")
    assert ended.returncode == 2
    assert "0 visible acme devices" in ended.stderr

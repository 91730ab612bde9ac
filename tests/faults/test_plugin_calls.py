"""Every call into a plugin, misbehaving in every way: a message with the plugin's name, and nothing else is hurt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import bundle_of, metric, read_run, said
from faulty_flagperf import RUN, SITE, assert_nothing_left, environment, first_always, flagperf

from flagperf.errors import FlagPerfError
from flagperf.plan.card_models import plan_for_model
from flagperf.plugins.installed import load_plugins
from flagperf.spec.job import RunSpec

HOOKS = (
    "flagperf_devices",
    "flagperf_memory_probes",
    "flagperf_launchers",
    "flagperf_clusters",
    "flagperf_cases",
    "flagperf_operator_libraries",
)
METHODS = ("models", "peaks", "unsupported", "tuning_folder", "command", "estimate")
LISTING = ("models", "peaks", "tuning_folder")
WORDS = {
    "raise": "ZeroDivisionError: the plugin's own words",
    "base": "OwnBase: the plugin's own words",
    "exit": "SystemExit",
}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, str, dict[str, str]]]:
    """Of a fault: exit code and message of a plan, and the problem of each plugin that has one."""
    monkeypatch.syspath_prepend(SITE)

    def plan(fault: str) -> tuple[int, str, dict[str, str]]:
        monkeypatch.setenv("FLAGPERF_FAULT", fault)
        for name in [name for name in sys.modules if name.partition(".")[0] == "flagperf_faulty"]:
            monkeypatch.delitem(sys.modules, name)
        plugins, code, words = load_plugins(), 0, ""
        try:
            plan_for_model(RunSpec("sleeper"), plugins, "F1")
        except FlagPerfError as error:
            code, words = error.exit_code, str(error)
        return code, words, {status.name: status.problem for status in plugins.statuses() if status.problem}

    return plan


def test_a_plugin_in_order_has_no_problem(planned: Any) -> None:
    assert planned("") == (0, "", {})


@pytest.mark.parametrize("way", [*WORDS, "type"])
def test_a_plugin_that_cannot_be_loaded_or_asked_is_listed_and_hurts_no_other(planned: Any, way: str) -> None:
    for call in ("import", *HOOKS) if way in WORDS else HOOKS:
        _, _, problems = planned(f"{call}:{way}")
        assert list(problems) == ["faulty"], call
        assert problems["faulty"].startswith("cannot be imported: " if call == "import" else call)
        assert WORDS.get(way, "object") in problems["faulty"]


@pytest.mark.parametrize(("call", "way"), list(product(METHODS, [*WORDS, "type"])))
def test_an_error_of_a_method_is_the_plugins(planned: Any, call: str, way: str) -> None:
    """Exit code 3. Where it cannot even list its models, the model is unknown (2), with that reason."""
    code, words, problems = planned(f"{call}:{way}")
    what = "flagperf_faulty:estimate" if call == "estimate" else call
    assert f"adapter flagperf-faulty 1.0 failed: {what}: " in words
    assert WORDS.get(way, "it gave object, not ") in words
    assert code == (2 if call in LISTING else 3) and problems == {}


def test_vendors_list_has_the_others_where_a_plugin_ends_every_command(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "vendors", "list", fault="import:os_exit")
    assert "cpu" in done.stdout and done.code == 3
    (row,) = [line for line in done.stdout.splitlines() if "flagperf-faulty 1.0" in line]
    assert "to load it and to call its hooks ends the process (exit code 0)" in row


@pytest.mark.parametrize(
    ("fault", "words"),
    first_always(
        ("flagperf_launchers:raise", "flagperf_launchers raised ZeroDivisionError: the plugin's own words"),
        ("presence:base", "OwnBase: the plugin's own words"),
    ),
)
def test_a_vendor_that_is_asked_for_and_fails_is_the_cause(tmp_path: Path, fault: str, words: str) -> None:
    done = flagperf(tmp_path, "plan", "sleeper", "--vendor", "faulty", fault=fault)
    assert done.code == 3 and done.stdout == ""
    assert "flagperf-faulty 1.0" in done.stderr and done.stderr.endswith(f"{words}\n")
    (row,) = [
        each for each in flagperf(tmp_path, "vendors", "list", fault=fault).stdout.splitlines() if "faulty" in each
    ]
    assert row.endswith(words)


def test_memory_probes_that_cannot_be_named_are_not_simply_absent(tmp_path: Path) -> None:
    """The run goes on without their figures; the cards are listed."""
    fault = "flagperf_memory_probes:raise"
    words = "flagperf_memory_probes raised ZeroDivisionError: the plugin's own words"
    said_so = f"adapter flagperf-faulty 1.0 failed: {words}"
    assert flagperf(tmp_path, *RUN, fault=fault).code == 0
    assert metric(read_run(bundle_of(tmp_path)), "mem_used")["detail"].endswith(said_so)
    listed = flagperf(tmp_path, "devices", "--json", fault=fault)
    (facts,) = [facts for facts in json.loads(listed.stdout) if facts["vendor"] == "faulty"]
    assert (listed.code, len(facts["devices"]), facts["probe"]) == (3, 2, said_so)


def test_an_unknown_name_has_the_problem_of_the_plugin_that_may_have_had_it(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text("[clusters.faultysite]\n")
    failed = "(not every plugin could be asked: flagperf-faulty 1.0: "
    for fault, arguments in (
        ("flagperf_clusters:raise", ("--cluster", "faultysite")),
        ("flagperf_clusters:raise", ("--config", "site.toml")),
        ("flagperf_cases:raise", ()),
    ):
        done = flagperf(tmp_path, "plan", "sleeper", *arguments, fault=fault)
        assert done.code == 2 and f"{failed}{fault.partition(':')[0]} " in done.stderr, done


@pytest.mark.full
def test_devices_names_an_adapter_that_could_not_be_asked(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "devices", "--json", fault="import:exit")
    assert done.code == 3
    assert "faulty" not in [facts["vendor"] for facts in json.loads(done.stdout)]
    assert "could not be asked: flagperf-faulty 1.0: cannot be imported: SystemExit" in done.stderr


def test_a_plugin_that_ends_every_command_is_started_without(tmp_path: Path) -> None:
    assert flagperf(tmp_path, "cases", "list", fault="import:os_exit").stdout == ""
    done = flagperf(tmp_path, "devices", fault="import:os_exit", variables={"FLAGPERF_WITHOUT": "faulty"})
    assert done.code == 0 and "cpu:0" in done.stdout and "faulty" not in done.stdout + done.stderr


def told_soon(*constants: str) -> list[str]:
    code = f"from flagperf.plugins import loading; {' = '.join(constants)} = 0.1; from flagperf.cli import main; main()"
    return [sys.executable, "-c", code, "cases", "list"]


def test_a_library_that_keeps_python_from_printing_is_shown_by_its_line(tmp_path: Path) -> None:
    command = told_soon("loading.NOTE_SECONDS", "loading.STUCK_SECONDS")
    environ = environment("import:stuck")
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("fault.py" in line for line in process.stderr)
        process.kill()


def test_a_plugin_that_hangs_is_named_with_the_way_on_and_the_line_where_it_is(tmp_path: Path) -> None:
    """Ctrl-C ends the command."""
    command = told_soon("loading.NOTE_SECONDS")
    process = subprocess.Popen(command, cwd=tmp_path, env=environment("import:loop"), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    told = ""
    while "starts without it" not in told or "fault.py" not in told:
        line = process.stderr.readline()
        assert line, f"the command ended: {told}"
        told += line
    assert "flagperf: still importing flagperf-faulty 1.0; FLAGPERF_WITHOUT=faulty starts without it" in told
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stderr.close()


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    first_always(
        ("release:exit", "succeeded", "adapter flagperf-faulty 1.0 failed: release: SystemExit: 0"),
        ("activate:type", "failed", "rank 0: AttributeError: 'object' object has no attribute 'torch_device'"),
    ),
)
def test_a_run_whose_plugin_fails_has_an_ending(tmp_path: Path, fault: str, status: str, words: str) -> None:
    done = flagperf(tmp_path, *RUN, "--cluster", "faultysite", fault=fault)
    bundle = bundle_of(tmp_path)
    assert (done.code, said(read_run(bundle))[0]) == (3, status)
    assert words in done.stderr
    assert (bundle / "MANIFEST").exists()
    assert_nothing_left(tmp_path, bundle)


def test_a_card_that_never_answers_its_single_rank_ends_the_run_at_the_time_limit(tmp_path: Path) -> None:
    done = flagperf(tmp_path, *RUN, "--timeout", "3", fault="synchronize:loop")
    bundle = bundle_of(tmp_path)
    run = read_run(bundle)
    assert (done.code, said(run)[0], run["job"]["nodes"][0]["devices"][1:]) == (5, "timed_out", [])
    assert (bundle / "MANIFEST").exists()
    assert_nothing_left(tmp_path, bundle)

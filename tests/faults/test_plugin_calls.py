"""Every call into a plugin, misbehaving in every way: a message with the plugin's name, and nothing else is hurt."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import bundle_of, metric, read_run, said
from faulty_flagperf import RUN, assert_nothing_left, environment, flagperf

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
WAYS = ("raise", "base", "interrupt", "exit", "os_exit", "crash")
OF_HOOKS = [*product(("import",), WAYS), *product(HOOKS, (*WAYS, "type")), ("import", "loop"), (HOOKS[0], "loop")]
OF_METHODS = [*product(METHODS, (*WAYS, "type")), ("peaks", "loop"), ("command", "loop")]
WORDS = {
    "raise": "ZeroDivisionError: the plugin's own words",
    "base": "OwnBase: the plugin's own words",
    "interrupt": "raised KeyboardInterrupt",
    "exit": "SystemExit",
    "os_exit": "ended the process (exit code 0)",
    "crash": "ended the process (killed by SIGABRT)",
    "loop": "did not return within 1 s",
}


def test_every_call_of_the_command_misbehaving_in_every_way(tmp_path: Path) -> None:
    """All in one process: a new one for each would take most of the time."""
    faults = [f"{call}:{way}" for call, way in [("", ""), *OF_HOOKS, *OF_METHODS]]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("plan_with_faults.py")), *faults],
        env=environment(FLAGPERF_PLUGIN_SECONDS="1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    plans = {line["fault"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert list(plans) == faults
    assert plans.pop(":") == {"fault": ":", "code": 0, "words": "", "problem": "", "others": []}
    assert [found for found in plans.values() if not is_told(found)] == []


def is_told(found: dict[str, Any]) -> bool:
    """A plugin that cannot be loaded or asked is listed and hurts no other. An error of its methods is its own, exit
    code 3; where it cannot even list its models, the model is unknown (2), with that reason."""
    call, _, way = found["fault"].partition(":")
    if call == "import" or call in HOOKS:
        begins = "cannot be imported: " if call == "import" else call
        is_listed = found["problem"].startswith(begins) and WORDS.get(way, "object") in found["problem"]
        return is_listed and not found["others"]
    words = found["words"]
    is_unlisted = call in LISTING and found["code"] == 2 and "no installed adapter knows it" in words
    is_named = (
        f"adapter flagperf-faulty 1.0 failed: {call if call != 'estimate' else 'flagperf_faulty:estimate'}" in words
    )
    return (is_unlisted or found["code"] == 3) and is_named and WORDS.get(way, "it gave object, not ") in words


@pytest.mark.parametrize("fault", ["import:os_exit", "flagperf_launchers:exit", "presence:os_exit", "presence:base"])
def test_vendors_list_has_the_others_and_says_what_is_wrong(tmp_path: Path, fault: str) -> None:
    done = flagperf(tmp_path, "vendors", "list", fault=fault)
    assert "flagperf-faulty 1.0" in done.stdout + done.stderr
    assert "cpu" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert done.code == 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("flagperf_launchers:raise", "flagperf_launchers raised ZeroDivisionError: the plugin's own words"),
        ("flagperf_devices:raise", "flagperf_devices raised ZeroDivisionError: the plugin's own words"),
        ("env_script:raise", "env_script: ZeroDivisionError: the plugin's own words"),
        ("presence:base", "OwnBase: the plugin's own words"),
    ],
)
def test_a_vendor_that_is_asked_for_and_fails_is_the_cause(tmp_path: Path, fault: str, words: str) -> None:
    done = flagperf(tmp_path, "plan", "sleeper", "--vendor", "faulty", fault=fault)
    assert done.code == 3 and done.stdout == ""
    assert "flagperf-faulty 1.0" in done.stderr and done.stderr.endswith(f"{words}\n")
    if "flagperf_devices" not in fault:  # which leaves no vendor to list
        (row,) = [
            line for line in flagperf(tmp_path, "vendors", "list", fault=fault).stdout.splitlines() if "faulty" in line
        ]
        assert row.endswith(words)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("raise", "raised ZeroDivisionError: the plugin's own words"),
        ("type", "raised TypeError: 'object' object is not iterable"),
        ("os_exit", "ended the process (exit code 0)"),
    ],
)
def test_memory_probes_that_cannot_be_named_are_not_simply_absent(tmp_path: Path, way: str, words: str) -> None:
    """The run goes on without their figures; the cards are listed."""
    fault = f"flagperf_memory_probes:{way}"
    said_so = f"adapter flagperf-faulty 1.0 failed: flagperf_memory_probes {words}"
    assert flagperf(tmp_path, *RUN, fault=fault).code == 0
    assert metric(read_run(bundle_of(tmp_path)), "mem_used")["detail"].endswith(said_so)
    listed = flagperf(tmp_path, "devices", "--json", fault=fault)
    (facts,) = [facts for facts in json.loads(listed.stdout) if facts["vendor"] == "faulty"]
    assert (listed.code, len(facts["devices"]), facts["probe"]) == (3, 2, said_so)
    assert flagperf(tmp_path, "vendors", "list", fault=fault).code == 3


def test_an_unknown_name_has_the_problem_of_the_plugin_that_may_have_had_it(tmp_path: Path) -> None:
    """Also of a case whose hook ends the process, right after a call of the cluster: that is noticed in a fork."""
    (tmp_path / "site.toml").write_text("[clusters.faultysite]\n")
    failed = "(not every plugin could be asked: flagperf-faulty 1.0: "
    for fault, arguments in (
        ("flagperf_clusters:raise", ("--cluster", "faultysite")),
        ("flagperf_clusters:raise", ("--config", "site.toml")),
        ("flagperf_cases:os_exit", ()),
    ):
        done = flagperf(tmp_path, "plan", "sleeper", *arguments, fault=fault)
        assert done.code == 2 and f"{failed}{fault.partition(':')[0]} " in done.stderr, done


def test_devices_names_an_adapter_that_could_not_be_asked(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "devices", "--json", fault="import:os_exit")
    assert done.code == 3
    assert "faulty" not in [facts["vendor"] for facts in json.loads(done.stdout)]
    assert "could not be asked: flagperf-faulty 1.0: cannot be imported: it ended the process" in done.stderr


@pytest.mark.parametrize("way", ["raise", "exit", "os_exit", "type"])
@pytest.mark.parametrize("call", ["allocate", "agent_command"])
def test_a_cluster_that_cannot_give_its_nodes_is_said_so(tmp_path: Path, call: str, way: str) -> None:
    done = flagperf(tmp_path, "plan", "sleeper", "--cluster", "faultysite", fault=f"{call}:{way}")
    assert done.code == 3
    assert done.stderr.startswith(f"flagperf: adapter flagperf-faulty 1.0 failed: {call}: ")


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("release:os_exit", "succeeded", "adapter flagperf-faulty 1.0 failed: release: SystemExit: os._exit(0)"),
        ("activate:type", "failed", "rank 0: AttributeError: 'object' object has no attribute 'torch_device'"),
    ],
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

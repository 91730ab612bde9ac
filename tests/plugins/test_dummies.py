"""Acme cards and toys, installed as their authors would ship them: from the adapter's answer to the exit code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from plugin_harness import DUMMIES, Ended, FlagPerf, Site, install_dummies

GIB = 1 << 30
FAILED = "acme: its adapter flagperf-acme 1.2.3 failed: "


def planned(flagperf: FlagPerf, *arguments: str, **environment: Any) -> dict[str, Any]:
    ended = flagperf("plan", "toy", "--json", *arguments, **environment)
    assert ended.returncode == 0, ended.stderr
    return dict(ended.json)


# --- which vendor ----------------------------------------------------------------------------------------------------


def test_clean_absence_takes_the_cpu_and_says_who_looked(flagperf: FlagPerf) -> None:
    plan = planned(flagperf, state="absent")
    assert plan["vendor"].startswith("cpu (no accelerator found by: acme")  # and by adapters installed beside it
    assert plan["job"]["vendor"] == "cpu"


def test_the_vendor_that_is_present_is_taken_with_its_tuning_peaks_and_command(flagperf: FlagPerf) -> None:
    plan = planned(flagperf, "--devices", "2", state="present")
    job, config = plan["job"], plan["job"]["config"]
    assert (plan["vendor"], job["vendor"], job["adapter"]) == ("acme", "acme", "flagperf-acme 1.2.3")
    assert job["vendor_title"] == {"en": "Acme", "zh": "艾克米"}
    assert [device["id"] for device in job["nodes"][0]["devices"]] == ["acme-aaaa", "acme-bbbb"]
    peaks = {peak["row"]: peak for peak in job["peaks"]}
    assert (peaks["fp32"]["value"], peaks["fp32"]["source"]) == (1.5e12, "Acme A1 datasheet, page 3")
    assert "bf16" not in peaks, "it is a sibling's"
    (command,) = plan["commands"]
    assert {setting["name"]: setting["value"] for setting in command["settings"]}["ACME_FAST"] == "1"
    assert command["remove"] == ["ACME_DEBUG"] and "--nproc-per-node=2" in command["argv"]
    assert config["values"]["training"]["batch_size"] == 24
    layer = "tuning acme Acme A1 (Acme application note 12)"
    assert (config["layers"]["training.batch_size"], config["deviations"]) == (layer, {"training.batch_size": layer})


@pytest.mark.parametrize(("word", "vendor"), [("cpu", "cpu"), ("AcmeCorp", "acme")])
def test_a_vendor_is_asked_for_by_its_word_or_alias(flagperf: FlagPerf, word: str, vendor: str) -> None:
    assert planned(flagperf, "--vendor", word, state="present")["job"]["vendor"] == vendor


@pytest.mark.parametrize(
    ("state", "arguments", "words"),
    [
        ("partial", (), ["acme: PCI 0000:3b:00.0 has vendor 0xac3e; /dev/acme0 is not there", "--vendor cpu"]),
        ("raise", (), [f"{FAILED}OSError: acmectl: firmware 3 is too old", "--vendor cpu"]),
        ("crash", (), ["SIGSEGV"]),
        ("no_cards", (), ["0 visible acme devices"]),
        ("absent", ("--vendor", "acme"), ["no usable card on ", "looked for /dev/acme* and PCI vendor 0xac3e"]),
        ("absent", ("--vendor", "acm"), ["unknown vendor 'acm'; did you mean acme", "the package flagperf-<vendor>"]),
    ],
)
def test_cards_that_cannot_be_used_are_bad_input_with_the_way_on(
    flagperf: FlagPerf, state: str, arguments: tuple[str, ...], words: list[str]
) -> None:
    ended = flagperf("plan", "toy", *arguments, state=state)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert not [each for each in words if each not in ended.stderr], ended.stderr
    assert "did not answer" not in ended.stderr


def test_a_driver_that_never_answers_is_a_message_and_no_hang(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", state="hang", adapter_seconds=1)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{FAILED}it did not answer in time" in ended.stderr
    assert "may hang" in ended.stderr and "--vendor cpu" in ended.stderr


def test_a_tool_that_never_answers_and_holds_our_pipe_is_no_hang_either(flagperf: FlagPerf) -> None:
    """The tool has the agent's stdout in its hands; killing the agent alone does not close that pipe."""
    ended = flagperf("devices", state="hang_in_tool", adapter_seconds=1)
    assert ended.returncode == 3
    assert f"{FAILED}it did not answer in time" in ended.stderr and "cpu:0" in ended.stdout


def test_the_cpu_can_be_used_beside_an_adapter_that_crashes(flagperf: FlagPerf) -> None:
    assert planned(flagperf, "--vendor", "cpu", state="crash")["job"]["vendor"] == "cpu"


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [("chatty", 0, '"state": "present"'), ("nonsense", 3, "perhaps"), ("raise", 3, "firmware 3"), ("absent", 0, "cpu")],
)
def test_an_adapters_answer_is_in_the_list_and_in_the_exit_code(
    flagperf: FlagPerf, state: str, code: int, words: str
) -> None:
    ended = flagperf("vendors", "list", "--json", state=state)
    assert ended.returncode == code
    facts = {each["vendor"]: each for each in ended.json["vendors"]}
    assert "cpu" in facts and words in json.dumps(facts["acme"] if words != "cpu" else facts)


def test_devices_are_read_by_the_first_probe_that_is_available(flagperf: FlagPerf) -> None:
    ended = flagperf("devices", "--json", state="present")
    acme = next(facts for facts in ended.json if facts["vendor"] == "acme")
    assert acme["probe"] == "acme-sysfs"
    readings = [(reading["device_id"], reading["used_bytes"]) for reading in acme["readings"]]
    assert readings == [("acme-aaaa", GIB), ("acme-bbbb", GIB)]


def test_env_names_cards_driver_and_the_vendors_variable(flagperf: FlagPerf) -> None:
    ended = flagperf("env", state="present", ACME_VISIBLE_DEVICES="0,1")
    lines = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    assert {"cards acme 2 x Acme A1", "driver acme 7.1", "$ACME_VISIBLE_DEVICES 0,1"} <= set(lines)


# --- a case from outside ---------------------------------------------------------------------------------------------


def test_a_case_is_shown_without_being_imported(flagperf: FlagPerf) -> None:
    ended = flagperf("cases", "show", "toy_data")
    assert ended.returncode == 0, ended.stderr
    assert "A toy with data" in ended.stdout and "toys.txt one toy per line" in ended.stdout


def test_real_data_needs_a_directory_is_checked_by_the_case_and_stands_in_the_plan(
    flagperf: FlagPerf, tmp_path: Path
) -> None:
    def plan(*arguments: str) -> Ended:
        return flagperf("plan", "toy_data", "--profile", "standard", "--json", *arguments)

    assert "profile standard of case toy_data reads real data: give --data-dir" in plan().stderr
    missing = plan("--data-dir", str(tmp_path / "none"))
    assert missing.returncode == 2
    (tmp_path / "toys.txt").write_bytes(b"bear\nball\n")
    (tmp_path / "empty").mkdir()
    missing = plan("--data-dir", str(tmp_path / "empty"))
    assert missing.returncode == 2
    assert f"{tmp_path}/empty/toys.txt is missing: write one toy per line into it" in missing.stderr
    sha256 = hashlib.sha256(b"bear\nball\n").hexdigest()
    files = plan("--data-dir", str(tmp_path)).json["job"]["data_files"]
    assert files == [{"path": "toys.txt", "num_bytes": 10, "sha256": sha256}]


def check_run(flagperf: FlagPerf, runs: Path) -> None:
    ended = flagperf("run", "toy", "--runs-dir", str(runs), "--json", state="present", ACME_DEBUG="1")
    assert ended.returncode == 0, ended.stderr
    assert "vendor: acme" in ended.stderr
    (bundle,) = runs.iterdir()
    run = json.loads((bundle / "run.json").read_text())
    assert (run["job"]["vendor"], run["job"]["case_version"], run["ending"]["status"]) == ("acme", 2, "succeeded")
    metrics = {metric["name"]: metric.get("value") for metric in run["metrics"]}
    assert (metrics["acc"], metrics["mem_used"]) == (0.75, 3 * GIB)
    started = json.loads((bundle / "events" / "rank-00000.jsonl").read_text().splitlines()[0])
    assert (started["device_id"], started["mapping"]) == ("acme-aaaa", "uuid")
    assert started["framework"]["acme_fast"] == "1" and started["framework"]["cpus"]
    probe = json.loads((bundle / "samples" / "node-000.jsonl").read_text().splitlines()[0])
    assert (probe["probe"], probe["not_used"]) == ("acme-sysfs", {"acme-smi": "acme-smi is not installed"})


@pytest.mark.run
def test_it_runs_on_the_vendors_cards_and_the_bundle_tells_all_three(flagperf: FlagPerf, tmp_path: Path) -> None:
    check_run(flagperf, tmp_path)


@pytest.mark.full
@pytest.mark.run
def test_it_runs_on_an_adapter_that_pip_installed(tmp_path: Path) -> None:
    toys = Site(tmp_path / "toys")
    toys.folder.mkdir()
    toys.describe("flagperf-toy", "0.3", "toy = flagperf_toy")
    installed = install_dummies(tmp_path / "site", DUMMIES / "acme")
    check_run(FlagPerf([installed, toys.folder, DUMMIES], tmp_path), tmp_path / "runs")

"""Which vendor a command uses, from the installed adapter to the exit code."""

from __future__ import annotations

from typing import Any

from plugin_harness import FlagPerf

GIB = 1 << 30


def planned(flagperf: FlagPerf, *arguments: str, **environment: Any) -> dict[str, Any]:
    ended = flagperf("plan", "toy", "--json", *arguments, **environment)
    assert ended.returncode == 0, ended.stderr
    return dict(ended.json)


def test_clean_absence_takes_the_cpu_and_says_who_looked(flagperf: FlagPerf) -> None:
    plan = planned(flagperf, state="absent")
    assert plan["vendor"].startswith(
        "cpu (no accelerator found by: acme"
    )  # and by adapters that are installed beside it
    assert plan["job"]["vendor"] == "cpu"


def test_the_vendor_that_is_present_is_taken(flagperf: FlagPerf) -> None:
    plan = planned(flagperf, state="present")
    job = plan["job"]
    assert (plan["vendor"], job["vendor"], job["adapter"]) == ("acme", "acme", "flagperf-acme 1.2.3")
    assert job["vendor_title"] == {"en": "Acme", "zh": "艾克米"}
    assert job["nodes"][0]["devices"][0]["id"] == "acme-aaaa"


def test_the_cpu_can_be_asked_for_where_a_card_is_present(flagperf: FlagPerf) -> None:
    plan = planned(flagperf, "--vendor", "cpu", state="present")
    assert (plan["vendor"], plan["job"]["vendor"]) == ("cpu", "cpu")


def test_partial_evidence_stops_with_that_evidence_and_the_way_on(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", state="partial")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "acme: PCI 0000:3b:00.0 has vendor 0xac3e; /dev/acme0 is not there" in ended.stderr
    assert "--vendor cpu" in ended.stderr


def test_an_adapter_that_raises_stops_with_its_words_and_the_way_on(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", state="raise")
    assert ended.returncode == 2
    assert "its adapter flagperf-acme 1.2.3 failed: OSError: acmectl: firmware 3 is too old" in ended.stderr
    assert "--vendor cpu" in ended.stderr


def test_an_absent_vendor_that_is_asked_for_says_what_was_looked_for(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", "--vendor", "acme", state="absent")
    assert ended.returncode == 2
    assert "--vendor acme: no usable card on " in ended.stderr
    assert "looked for /dev/acme* and PCI vendor 0xac3e" in ended.stderr


def test_an_unknown_vendor_comes_with_near_matches_and_what_brings_another(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy", "--vendor", "acm")
    assert ended.returncode == 2
    assert "unknown vendor 'acm'; did you mean acme" in ended.stderr
    assert "the package flagperf-<vendor>" in ended.stderr


def test_an_alias_means_the_vendor(flagperf: FlagPerf) -> None:
    assert planned(flagperf, "--vendor", "AcmeCorp", state="present")["job"]["vendor"] == "acme"


def test_tuning_of_the_card_is_a_layer_and_a_deviation(flagperf: FlagPerf) -> None:
    config = planned(flagperf, state="present")["job"]["config"]
    layer = "tuning acme Acme A1 (Acme application note 12)"
    assert config["values"]["training"]["batch_size"] == 24
    assert config["layers"]["training.batch_size"] == layer
    assert config["deviations"] == {"training.batch_size": layer}


def test_the_peak_is_of_this_card_and_precision_or_unknown(flagperf: FlagPerf) -> None:
    peaks = {peak["row"]: peak for peak in planned(flagperf, state="present")["job"]["peaks"]}
    assert (peaks["fp32"]["value"], peaks["fp32"]["source"]) == (1.5e12, "Acme A1 datasheet, page 3")
    assert "bf16" not in peaks


def test_the_vendors_launcher_makes_the_command(flagperf: FlagPerf) -> None:
    (command,) = planned(flagperf, "--devices", "2", state="present")["commands"]
    assert {setting["name"]: setting["value"] for setting in command["settings"]}["ACME_FAST"] == "1"
    assert command["remove"] == ["ACME_DEBUG"]
    assert "--nproc-per-node=2" in command["argv"]


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

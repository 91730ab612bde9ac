"""Good and bad plugins side by side, as the command shows them: each bad one is reported, and the rest works on."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from plugin_harness import HEADER, FlagPerf, Site, device_source, launcher_source

PLUGINS_BESIDE = {entry_point.name for entry_point in importlib.metadata.entry_points(group="flagperf")}
"""What this environment has without those of the test: ours, and perhaps adapters."""

SOURCES = {
    "import_error": "import library_of_no_vendor",
    "wrong_hook_api": "FLAGPERF_HOOK_API = 99",
    "no_hook_api": "",
    "raising": f"""{HEADER}
from flagperf.api import Cluster
from flagperf.errors import BadInput
class BackYard(Cluster):
    name = "backyard"
    def allocate(self, num_nodes, options): raise BadInput("the back yard is empty")
@hookimpl
def flagperf_devices(): raise ValueError("no firmware table for this board")
@hookimpl
def flagperf_clusters(): return [BackYard()]
""",
    "wrong_type": f"{HEADER}@hookimpl\ndef flagperf_devices(): return 'acme'",
    "wrong_signature": f"{HEADER}@hookimpl\ndef flagperf_devices(machine): return []",
    "claimant": device_source("acme", "disputed") + launcher_source("acme"),
    "claimant_cpu": device_source("cpu", "disputed") + launcher_source("cpu"),
    "bad_cases": f"""{HEADER}
from pathlib import Path
@hookimpl
def flagperf_cases():
    return [CaseReference("a:b", Path(__file__).parent / name) for name in ("not_toml", "wrong_field", "toy", "fine")]
""",
}
PROBLEMS = {
    "import_error": "cannot be imported: ModuleNotFoundError: No module named 'library_of_no_vendor'",
    "wrong_hook_api": "it was written for HOOK_API 99, this flagperf ",
    "no_hook_api": "it does not say FLAGPERF_HOOK_API",
    "raising": "flagperf_devices raised ValueError: no firmware table for this board",
    "wrong_type": "flagperf_devices gave str, not DeviceBackend",
    "wrong_signature": "does not fit the contract: ",
    "claimant": "'acme' is also claimed by flagperf-acme 1.2.3",
    "claimant_cpu": "'cpu' is also claimed by flagperf ",
    "bad_cases": "not_toml is not valid TOML",
    "no-entry-point": "it has no entry point of the group `flagperf`: add [project.entry-points.flagperf]",
}
CASE = """
name = "{name}"
version = 1
kind = {kind}
title = {{ en = "Small" }}
task = {{ en = "None" }}
model = "none"
dataset = "none"
precisions = ["fp32"]
default_profile = "tiny"
page = {{ columns = ["precision"], rows = ["precision"] }}
[values]
precision = "fp32"
[profiles.tiny]
about = {{ en = "Nothing." }}
"""


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory, dummies: list[Path]) -> FlagPerf:
    """The bad ones beside the dummies that are in order."""
    site = Site(tmp_path_factory.mktemp("crowded"))
    for name, source in SOURCES.items():
        site.add(f"flagperf-{name.replace('_', '-')}", source, entry_points=[f"{name} = flagperf_{name}"])
    site.add("flagperf-no-entry-point", "", entry_points=[])
    (site.folder / "not_toml").write_text("no")
    for name, kind in (("wrong_field", "7"), ("toy", '"training"'), ("fine", '"training"')):
        (site.folder / name).write_text(CASE.format(name=name, kind=kind))
    return FlagPerf([site.folder, *dummies], tmp_path_factory.mktemp("empty"))


@pytest.fixture
def listed(crowded: FlagPerf) -> dict[str, Any]:
    ended = crowded("vendors", "list", "--json")
    assert ended.returncode == 3, ended.stderr
    return dict(ended.json)


def test_each_bad_plugin_is_listed_with_its_reason_and_no_good_one_has_any(listed: dict[str, Any]) -> None:
    names = [plugin["name"] for plugin in listed["plugins"]]
    assert names == ["builtin", "cases", *sorted(names[2:-1]), "no-entry-point"], "ours come first"
    problems = {plugin["name"]: plugin["problem"] for plugin in listed["plugins"]}
    assert "'disputed' is also claimed by flagperf-claimant-cpu 1.0" in problems["claimant"]
    assert "'disputed' is also claimed by flagperf-claimant 1.0" in problems["claimant_cpu"]
    assert "flagperf_cases: 'toy' is also claimed by flagperf-toy 0.3" in problems["bad_cases"]
    for name, reason in PROBLEMS.items():
        assert reason in problems.pop(name), name
    assert {"acme", "toy"} <= set(problems) <= {"acme", "toy", *PLUGINS_BESIDE}
    assert set(problems.values()) == {""}


def test_only_owners_serve_their_word_and_a_word_without_owner_is_nobodys(listed: dict[str, Any]) -> None:
    adapters = {vendor["vendor"]: vendor["adapter"].split()[0] for vendor in listed["vendors"]}
    expected = {"cpu": "flagperf", "acme": "flagperf-acme", **{word: f"flagperf-{word}" for word in PLUGINS_BESIDE}}
    assert adapters == {word: expected[word] for word in adapters}
    assert {"cpu", "acme"} <= set(adapters)


def test_the_text_of_vendors_list_has_one_line_for_each(crowded: FlagPerf) -> None:
    ended = crowded("vendors", "list", state="present")
    assert (ended.returncode, ended.stderr) == (3, "")
    rows = {line.split()[0]: line for line in ended.stdout.splitlines()}
    assert "present" in rows["acme"] and "/dev/acme0" in rows["acme"] and "flagperf-acme 1.2.3" in rows["acme"]
    for name, reason in PROBLEMS.items():
        word = name.replace("_", "-")
        assert reason in rows[word] and rows[word].split()[1:5] == [f"flagperf-{word}", "1.0", "not", "used"]
    assert "flagperf-toy 0.3" in rows["toy"] and "it gives no device backend" in rows["toy"]


@pytest.mark.parametrize(
    ("name", "command", "code"),
    [
        ("import_error", ("vendors", "check", "import-error"), 3),
        ("wrong_hook_api", ("run", "toy", "--vendor", "wrong-hook-api"), 2),
        ("no-entry-point", ("plan", "toy", "--vendor", "no-entry-point"), 3),
    ],
)
def test_asking_for_a_bad_plugin_gives_its_own_problem(
    crowded: FlagPerf, name: str, command: tuple[str, ...], code: int
) -> None:
    ended = crowded(*command)
    assert ended.returncode == code
    assert PROBLEMS[name] in ended.stderr
    assert "unknown vendor" not in ended.stderr and "Traceback" not in ended.stderr


def test_one_bad_case_costs_only_itself_and_is_listed_with_its_reason(crowded: FlagPerf) -> None:
    ended = crowded("cases", "list", "--json")
    assert ended.returncode == 0, ended.stderr
    names = [case["name"] for case in ended.json]
    assert {"toy", "toy_data", "fine"} <= set(names) and names == sorted(names)
    assert "wrong_field" not in names
    assert crowded("cases", "show", "toy", "--json").json["version"] == 2, "the one of the distribution of that name"
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("plugin bad_cases (")]
    assert "wrong_field: kind: " in line and "not_toml is not valid TOML" in line
    assert "import_error" in ended.stderr  # it may have had cases to give
    assert "no firmware table for this board" not in ended.stderr  # which is about a vendor


def test_asking_for_a_case_that_cannot_be_used_gives_its_reason(crowded: FlagPerf) -> None:
    ended = crowded("run", "wrong_field")
    assert ended.returncode == 2
    assert "case 'wrong_field' cannot be used: " in ended.stderr and "wrong_field: kind: " in ended.stderr
    ended = crowded("cases", "show", "wrong_feild")
    assert ended.returncode == 2
    assert "unknown case 'wrong_feild'; did you mean wrong_field?" in ended.stderr


def test_what_a_plugin_gives_by_its_good_hooks_is_used(crowded: FlagPerf) -> None:
    ended = crowded("plan", "toy", "--cluster", "backyard")
    assert (ended.returncode, ended.stderr) == (2, "flagperf: the back yard is empty\n")


def test_the_cpu_is_not_taken_unasked_where_an_adapter_could_not_look(crowded: FlagPerf) -> None:
    ended = crowded("plan", "toy", state="absent")
    assert ended.returncode == 2
    assert "not every adapter could be asked" in ended.stderr
    assert "No module named 'library_of_no_vendor'" in ended.stderr
    assert "no firmware table for this board" in ended.stderr
    assert "--vendor cpu" in ended.stderr
    assert crowded("plan", "toy", "--vendor", "cpu", state="absent").returncode == 0


def test_a_card_that_was_found_is_used_beside_broken_adapters(crowded: FlagPerf) -> None:
    assert crowded("plan", "toy", "--json", state="present").json["job"]["vendor"] == "acme"

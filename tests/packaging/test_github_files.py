"""What GitHub reads: files of the right form, and workflows that may do no more than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from flagperf.spec.toml_files import read_toml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
FORMS = sorted(path for path in GITHUB.glob("ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps() -> list[tuple[str, dict[str, Any]]]:
    jobs = [(path.name, job) for path in WORKFLOWS for job in read(path)["jobs"].values()]
    return [(name, step) for name, job in jobs for step in job.get("steps", ())]


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("dependabot", [GITHUB / "dependabot.yml"]),
    ],
)
def test_every_file_has_the_form_that_is_published_for_it(schema: str, paths: list[Path]) -> None:
    assert paths
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actions_are_pinned_by_commit_with_their_version_beside_it() -> None:
    used = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    ours, others = ([line for line in used if ("uses: $/" in line) is own] for own in (True, False))
    assert len(others) >= 10 and len(ours) == 2
    assert [line for line in others if not re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []
    pins = {tuple(line.split("uses: ")[1].split("@")) for line in others}
    assert len(pins) == len({name for name, _ in pins}), "one action, one version"


def test_a_workflow_may_do_nothing_and_a_job_only_what_it_needs() -> None:
    allowed = {"contents": "read"}
    granted = {(path.stem, name): job["permissions"] for path in WORKFLOWS for name, job in read(path)["jobs"].items()}
    assert [path.name for path in WORKFLOWS if read(path)["permissions"] != {}] == []
    assert {place: given for place, given in granted.items() if given != allowed} == {
        ("publish", "publish"): {"id-token": "write"},
        ("site", "deploy"): {"pages": "write", "id-token": "write"},
    }


def test_no_checkout_leaves_its_token_behind() -> None:
    checkouts = [step for _, step in steps() if "actions/checkout@" in step.get("uses", "")]
    assert len(checkouts) >= 5
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_publishing_needs_a_tag_the_environment_all_tests_and_what_was_built() -> None:
    publish = read(GITHUB / "workflows" / "publish.yml")
    assert publish[True] == {"push": {"tags": ["v*"]}}  # `on` is a truth value to YAML 1.1
    job = publish["jobs"]["publish"]
    assert (job["environment"], job["needs"]) == ("release", ["tests", "build"])
    for name, called in (("tests", "tests.yml"), ("build", "wheels.yml")):
        caller = publish["jobs"][name]
        assert (caller["needs"], caller["uses"]) == ("version", f"$/.github/workflows/{called}")
        assert "workflow_call" in read(GITHUB / "workflows" / called)[True]
    assert [step["with"] for step in job["steps"]][1]["attestations"] is True


def test_the_light_part_runs_on_every_python_that_the_metadata_names() -> None:
    classifiers = read_toml(ROOT / "pyproject.toml")["project"]["classifiers"]
    named = [found[1] for text in classifiers if (found := re.fullmatch(r".*:: Python :: (3\.\d+)", text))]
    matrix = read(GITHUB / "workflows" / "tests.yml")["jobs"]["light"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert {"python": named[0], "oldest": "1"} in matrix["include"]


def test_workflows_and_hooks_call_targets_that_exist() -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    (hook,) = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    commands = [*(step.get("run", "") for _, step in steps()), hook["entry"]]
    called = {target for text in commands for target in re.findall(r"\bmake ([a-z-]+)", text)}
    assert called >= {"lint", "dist", "test-light", "docs-site", "audit"}
    assert called <= known
    assert any(".ci/run" in text for text in commands)


def test_a_value_of_the_event_reaches_no_shell() -> None:
    assert [(name, step["run"]) for name, step in steps() if "${{" in step.get("run", "")] == []

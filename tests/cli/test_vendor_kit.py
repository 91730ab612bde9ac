"""flagperf vendors new, flagperf vendors check: what they say where they cannot do it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flagperf.cli import cli
from flagperf.cli.vendor_kit import TierResult, read_report, write_adapter
from flagperf.errors import BadInput, MissingPart

REPORT = """<testsuites><testsuite>
<testcase classname="suites.TestDevice" name="test_one"/>
<testcase classname="suites.TestDevice" name="test_two"><failure message="AssertionError: no">trace</failure></testcase>
<testcase classname="suites.TestMemory" name="test_three"><error message="fixture">trace</error></testcase>
<testcase classname="suites.TestMemory" name="test_four"><skipped message="needs cards"/></testcase>
</testsuite></testsuites>"""


def run(*arguments: str, catch_exceptions: bool = True) -> Result:
    """From the top, as a user does: a command that is called by itself keeps other words for its help."""
    return CliRunner().invoke(cli, ["vendors", *arguments], catch_exceptions=catch_exceptions)


def new(*arguments: str) -> Result:
    return run("new", *arguments)


@pytest.mark.parametrize("word", ["Acme", "9acme", "ac-me", "ac me", "../acme", ""])
def test_a_vendor_word_is_one_lower_case_word(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = new(word).exception
    assert isinstance(error, BadInput) and "is no vendor word" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_the_word_of_an_installed_adapter_is_taken(tmp_path: Path) -> None:
    error = new("cpu", "--folder", str(tmp_path / "package")).exception
    assert isinstance(error, BadInput) and "choose another one" in str(error)


def test_the_name_of_an_installed_package_is_taken(tmp_path: Path) -> None:
    error = new("cases", "--folder", str(tmp_path / "package")).exception
    assert isinstance(error, BadInput) and "a package flagperf_cases is installed already" in str(error)


def test_nothing_is_written_over_and_nothing_is_left_half(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert "exists" in str(new("acme", "--folder", str(tmp_path / "there")).exception)
    assert "is not a folder" in str(new("acme", "--folder", str(tmp_path / "no" / "where")).exception)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_the_package_says_that_it_is_typed(tmp_path: Path) -> None:
    assert "src/flagperf_acme/py.typed" in write_adapter("acme", tmp_path / "package")
    assert (tmp_path / "package" / "src" / "flagperf_acme" / "py.typed").read_text() == ""


def test_without_pytest_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pytest" else find_spec(name))
    error = run("check", "cpu").exception
    assert isinstance(error, MissingPart) and "pip install 'flagperf[testing]'" in str(error)


def test_tests_that_are_not_there_are_bad_input(tmp_path: Path) -> None:
    error = run("check", "cpu", "--tests", str(tmp_path / "none")).exception
    assert isinstance(error, BadInput) and "is not a folder" in str(error)


def test_a_report_is_counted_by_what_became_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    result = read_report("offline", tmp_path / "report.xml")
    failures = {"TestDevice.test_two": "AssertionError: no", "TestMemory.test_three": "fixture"}
    assert result == TierResult("offline", 1, failures, {"needs cards": 1})
    assert result.verdict == "fail"


def test_a_tier_in_which_all_was_skipped_has_not_run() -> None:
    assert TierResult("hardware", 0, {}, {"needs cards": 9}).verdict == "not run"


def test_what_was_written_is_json_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    done = new("acme", "--folder", str(folder), "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["folder"] == str(folder)
    assert sorted(said["files"]) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )


def test_the_vendor_that_every_machine_has_passes_and_what_does_not_apply_is_skipped_with_its_reason() -> None:
    done = run("check", "cpu", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "cpu: offline: pass; hardware: not run" in done.output
    assert "1 skipped: every machine has cpu: it is never absent" in done.output

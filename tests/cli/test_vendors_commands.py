"""flagperf vendors check, vendors new"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flagperf.cli import cli
from flagperf.cli.vendors import TierResult, read_report, write_adapter
from flagperf.errors import BadInput

REPORT = """<testsuites><testsuite>
<testcase classname="suites.TestDevice" name="test_one"/>
<testcase classname="suites.TestDevice" name="test_two"><failure message="AssertionError: no">trace</failure></testcase>
<testcase classname="suites.TestMemory" name="test_three"><error message="fixture">trace</error></testcase>
<testcase classname="suites.TestMemory" name="test_five">
<failure message="AssertionError: Traceback (most recent call last):&#10;  File [+9 more lines]">
E       AssertionError: Traceback (most recent call last):
E           File "device.py", line 3
E         OSError: acmectl: no
E       assert 1 == 0
</failure></testcase>
<testcase classname="suites.TestMemory" name="test_four"><skipped message="needs cards"/></testcase>
</testsuite></testsuites>"""

HINT = "; --tests DIR runs what needs simulated cards and recorded outputs"


def vendors(*arguments: str, catch_exceptions: bool = True) -> Result:
    """Call a command from the top, as a user does: by itself, it keeps other words for its help."""
    return CliRunner().invoke(cli, ["vendors", *arguments], catch_exceptions=catch_exceptions)


def test_tests_that_are_not_there_are_bad_input(tmp_path: Path) -> None:
    error = vendors("check", "cpu", "--tests", str(tmp_path / "none")).exception
    assert isinstance(error, BadInput) and "is not a folder" in str(error)


def test_a_project_around_the_package_has_no_say_in_its_tests(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "conftest.py").write_text("import a_library_that_is_not_there")
    package = tmp_path / "flagperf-acme"
    (package / "tests").mkdir(parents=True)
    (package / "pyproject.toml").touch()
    (package / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef its_own(): return 1\n")
    (package / "tests" / "test_acme.py").write_text("def test_one(its_own): assert its_own == 1\n")
    for tests in (package / "tests", package):
        done = vendors("check", "cpu", "--tests", str(tests), catch_exceptions=False)
        assert (done.exit_code, done.stdout) == (0, "cpu: offline: pass (1 passed); hardware: not run\n"), done.output


def test_a_report_is_counted_by_what_became_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    result = read_report("offline", tmp_path / "report.xml")
    failures = {"TestDevice.test_two": "AssertionError: no", "TestMemory.test_three": "fixture"}
    failures["TestMemory.test_five"] = "OSError: acmectl: no"
    assert result == TierResult("offline", 1, failures, {"needs cards": 1})
    assert result.verdict == "fail"


def test_a_tier_in_which_all_was_skipped_has_not_run() -> None:
    assert TierResult("hardware", 0, {}, {"needs cards": 9}).verdict == "not run"


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (TierResult("offline", 42, {}, {}), "offline: pass (42 passed)"),
        (TierResult("hardware", 7, {}, {"needs torch": 2}), "hardware: pass (7 passed, 2 skipped)"),
        (TierResult("offline", 5, {"test": "why"}, {"a": 2, "b": 1}), "offline: fail (1 failed, 5 passed, 3 skipped)"),
        (
            TierResult("offline", 24, {}, {"needs simulated cards: run": 12, "other": 6}),
            f"offline: pass (24 passed, 18 skipped{HINT})",
        ),
    ],
)
def test_the_verdict_says_what_it_rests_on(result: TierResult, line: str) -> None:
    assert result.describe() == line


def test_the_vendor_that_every_machine_has_passes_and_what_does_not_apply_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the checkout's own conftest.py cannot be imported: it is for the checkout's tests."""
    (tmp_path / "hypothesis.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    done = vendors("check", "cpu", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (verdict,) = done.stdout.splitlines()
    assert re.fullmatch(rf"cpu: offline: pass \(\d+ passed, \d+ skipped{HINT}\); hardware: not run", verdict)
    assert "1 skipped: every machine has cpu: it is never absent" in done.output


def test_a_folder_without_tests_is_not_a_pass(tmp_path: Path) -> None:
    error = vendors("check", "cpu", "--tests", str(tmp_path)).exception
    assert isinstance(error, BadInput) and "no test is there" in str(error)


@pytest.mark.parametrize("word", ["Acme", "9acme", "ac-me", "ac me", "../acme", ""])
def test_a_vendor_word_is_one_lower_case_word(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = vendors("new", word).exception
    assert isinstance(error, BadInput) and "is not a vendor word" in str(error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("word", "said"), [("cpu", "choose another one"), ("cases", "a package flagperf_cases is already installed")]
)
def test_a_word_that_is_taken(word: str, said: str, tmp_path: Path) -> None:
    error = vendors("new", word, "--folder", str(tmp_path / "package")).exception
    assert isinstance(error, BadInput) and said in str(error)


def test_nothing_is_written_over_and_nothing_is_left_half(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert "exists" in str(vendors("new", "acme", "--folder", str(tmp_path / "there")).exception)
    assert "is not a folder" in str(vendors("new", "acme", "--folder", str(tmp_path / "no" / "where")).exception)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_the_package_says_that_it_is_typed(tmp_path: Path) -> None:
    assert "src/flagperf_acme/py.typed" in write_adapter("acme", tmp_path / "package")
    assert (tmp_path / "package" / "src" / "flagperf_acme" / "py.typed").read_text() == ""


def test_what_was_written_is_json_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    done = vendors("new", "acme", "--folder", str(folder), "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["folder"] == str(folder)
    assert sorted(said["files"]) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )

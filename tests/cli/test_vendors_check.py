"""flagperf vendors check"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flagperf.cli import cli
from flagperf.cli.vendors import TierResult, read_report
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


def check(*arguments: str, catch_exceptions: bool = True) -> Result:
    """From the top, as a user does: a command that is called by itself keeps other words for its help."""
    return CliRunner().invoke(cli, ["vendors", "check", *arguments], catch_exceptions=catch_exceptions)


def test_tests_that_are_not_there_are_bad_input(tmp_path: Path) -> None:
    error = check("cpu", "--tests", str(tmp_path / "none")).exception
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
        done = check("cpu", "--tests", str(tests), catch_exceptions=False)
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


def test_the_vendor_that_every_machine_has_passes_and_what_does_not_apply_is_skipped_with_its_reason() -> None:
    done = check("cpu", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (verdict,) = done.stdout.splitlines()
    assert re.fullmatch(rf"cpu: offline: pass \(\d+ passed, \d+ skipped{HINT}\); hardware: not run", verdict)
    assert "1 skipped: every machine has cpu: it is never absent" in done.output

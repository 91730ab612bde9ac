"""flagperf vendors check"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import click
import msgspec

from flagperf.cli.options import common, echo_json, note
from flagperf.cli.output import echo, echo_text
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf.kit import module_command
from flagperf.plan import describe_finding, describe_machine
from flagperf.plugins.installed import Plugins
from flagperf.plugins.trial import load_tried_plugins
from flagperf.spec import VendorFacts

SUITES = "flagperf.testing.installed"
CHECK_VENDOR = "FLAGPERF_CHECK_VENDOR"
NEED_ITS_TESTS = ("needs simulated cards", "this adapter has no recorded outputs")
"""How the reasons of skips begin for what only the adapter's own tests have."""
FAILED = 3


class TierResult(msgspec.Struct, frozen=True):
    tier: str
    num_passed: int
    failures: dict[str, str]
    """Test -> why it failed, in one line."""
    skips: dict[str, int]
    """Reason -> how many tests."""

    @property
    def verdict(self) -> str:
        if self.failures:
            return "fail"
        return "pass" if self.num_passed else "not run"

    def describe(self) -> str:
        """The verdict and what it rests on: a pass of which half was skipped must not look like a whole one."""
        num_skipped = sum(self.skips.values())
        counts = [f"{len(self.failures)} failed"] if self.failures else []
        counts += [f"{self.num_passed} passed"]
        counts += [f"{num_skipped} skipped"] if num_skipped else []
        lacks = any(reason.startswith(NEED_ITS_TESTS) for reason in self.skips)
        hint = "; --tests DIR runs what needs simulated cards and recorded outputs" if lacks else ""
        return f"{self.tier}: {self.verdict} ({', '.join(counts)}{hint})"


@click.command("check")
@click.argument("name")
@click.option("--hardware", is_flag=True, help="Also run the tests that need cards.")
@click.option("--tests", metavar="DIR", help="Run the adapter's own tests, with its simulated cards, instead of ours.")
@common
def check_vendor(name: str, hardware: bool, tests: str | None, as_json: bool) -> int:
    """Run the conformance suites against an installed adapter. With --hardware, also on the cards of this machine.

    Without --tests, what needs simulated cards or recorded outputs is skipped: only the adapter's own tests have them.
    The last line counts what passed and what was skipped.
    """
    plugins = load_tried_plugins()
    vendor = plugins.vendor_word(name)
    if tests is not None and not is_folder(Path(tests)):
        raise BadInput(f"--tests {tests} is not a folder")
    whose = _cards(vendor, plugins).shown_vendor if hardware else vendor
    results = [_run_tier(vendor, "offline", tests)]
    results += [_run_tier(vendor, "hardware", tests)] if hardware else []
    if as_json:
        echo_json({"vendor": whose, "tiers": results})
    else:
        _print_results(whose, results, hardware)
    return FAILED if any(result.failures for result in results) else 0


def _cards(vendor: str, plugins: Plugins) -> VendorFacts:
    found = describe_machine(plugins).vendors
    facts = next(facts for facts in found if facts.vendor == vendor)
    if not facts.devices:
        raise BadInput(f"--hardware needs {vendor} cards on this machine: {describe_finding(facts)}")
    return facts


def _run_tier(vendor: str, tier: str, tests: str | None) -> TierResult:
    chosen = ["-m", "hardware", "--flagperf-hardware"] if tier == "hardware" else ["-m", "not hardware"]
    where = _own_tests(Path(tests).absolute()) if tests else ["--pyargs", SUITES]
    with tempfile.TemporaryDirectory(prefix="flagperf-check-") as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [
                *module_command(sys.executable, "pytest"),
                "-q",
                "-c",
                os.devnull,
                "--rootdir",
                folder,
                "-p",
                "no:cacheprovider",
                f"--junitxml={report}",
                *chosen,
                *where,
            ],
            env={**os.environ, CHECK_VENDOR: vendor},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists() or (done.returncode > 1 and done.returncode != 5):
            raise BadInput(f"the suites could not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return read_report(tier, report)


def _own_tests(folder: Path) -> list[str]:
    """Without any conftest.py above their package: it is another project's, such as that of a checkout around it."""
    package = next((above for above in (folder, *folder.parents) if (above / "pyproject.toml").is_file()), folder)
    return ["--confcutdir", str(package), str(folder)]


def read_report(tier: str, path: Path) -> TierResult:
    cases = list(ElementTree.parse(path).iter("testcase"))
    failures, skips = {}, Counter[str]()
    for case in cases:
        problem = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
        skipped = case.find("skipped")
        if problem is not None:
            failures[f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"] = cause_of(problem)
        elif skipped is not None:
            skips[skipped.get("message", "")] += 1
    return TierResult(tier, len(cases) - len(failures) - skips.total(), failures, dict(skips))


def cause_of(problem: ElementTree.Element) -> str:
    """The first line of pytest's message. Where that is the head of a traceback, what was raised at its end: the lines
    of a message that a report has begin with `E`."""
    first = next(iter(problem.get("message", "").strip().splitlines()), "failed")
    if not first.endswith("Traceback (most recent call last):"):
        return first
    raised = re.findall(r"^E +([A-Za-z_][\w.]*: (?!Traceback).*)$", problem.text or "", re.MULTILINE)
    return raised[-1] if raised else first


def _print_results(vendor: str, results: list[TierResult], hardware: bool) -> None:
    for result in results:
        for test, message in result.failures.items():
            echo_text(f"{result.tier}: {test}\n    {message}\n")
        for reason, num_tests in result.skips.items():
            note(f"{result.tier}: {num_tests} skipped: {reason}")
    verdicts = [result.describe() for result in results]
    echo(f"{vendor}: " + "; ".join([*verdicts, *([] if hardware else ["hardware: not run"])]))

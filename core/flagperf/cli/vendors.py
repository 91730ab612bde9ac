"""flagperf vendors"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import click
import msgspec

from flagperf import version
from flagperf.cli import CommandGroup
from flagperf.cli.options import common, echo_json, exit_code_of, note
from flagperf.cli.output import echo, echo_columns, echo_path, echo_text
from flagperf.errors import BadInput
from flagperf.files import exists, is_folder
from flagperf.fleet.reach import describe_machine
from flagperf.kit import module_command
from flagperf.plan.placement import describe_finding
from flagperf.plugins.installed import load_plugins
from flagperf.plugins.loading import ADAPTER_PREFIX
from flagperf.plugins.trial import load_tried_plugins
from flagperf.text import pip_command

# flagperf vendors check


SUITES = "flagperf.testing.installed"

CHECK_VENDOR = "FLAGPERF_CHECK_VENDOR"

NEED_ITS_TESTS = ("needs simulated cards", "this adapter has no recorded outputs")
"""Beginnings of the reasons of skips for what only the adapter's own tests have."""

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
        """Return the verdict and what it rests on: if half was skipped, a pass must not look like a whole one."""
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
    whose = vendor
    if hardware:
        facts = next(facts for facts in describe_machine(plugins).vendors if facts.vendor == vendor)
        if not facts.devices:
            raise BadInput(f"--hardware needs {vendor} cards on this machine: {describe_finding(facts)}")
        whose = facts.shown_vendor
    results = [_run_tier(vendor, "offline", tests)]
    results += [_run_tier(vendor, "hardware", tests)] if hardware else []
    if as_json:
        echo_json({"vendor": whose, "tiers": results})
    else:
        for result in results:
            for test, message in result.failures.items():
                echo_text(f"{result.tier}: {test}\n    {message}\n")
            for reason, num_tests in result.skips.items():
                note(f"{result.tier}: {num_tests} skipped: {reason}")
        verdicts = [result.describe() for result in results]
        echo(f"{whose}: " + "; ".join([*verdicts, *([] if hardware else ["hardware: not run"])]))
    return FAILED if any(result.failures for result in results) else 0


def _run_tier(vendor: str, tier: str, tests: str | None) -> TierResult:
    chosen = ["-m", "hardware", "--flagperf-hardware"] if tier == "hardware" else ["-m", "not hardware"]
    # Without any conftest.py above them: it is another project's, as of a checkout around them.
    where = ["--confcutdir", str(TEMPLATE.parent), "--pyargs", SUITES]
    if tests:
        own = Path(tests).absolute()
        package = next((above for above in (own, *own.parents) if (above / "pyproject.toml").is_file()), own)
        where = ["--confcutdir", str(package), str(own)]
    with tempfile.TemporaryDirectory(prefix="flagperf-check-") as folder:
        report = Path(folder) / "report.xml"
        options = ("-q", "-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider")
        done = subprocess.run(
            [*module_command(sys.executable, "pytest"), *options, f"--junitxml={report}", *chosen, *where],
            env={**os.environ, CHECK_VENDOR: vendor},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists() or (done.returncode > 1 and done.returncode != 5):
            raise BadInput(f"the suites could not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        found = read_report(tier, report)
    if tests and tier == "offline" and not (found.num_passed or found.failures or found.skips):
        raise BadInput(f"--tests {tests}: no test is there; name the folder of your package's tests")
    return found


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
    """Return the first line of pytest's message. If that is the head of a traceback, return what was raised at its
    end: in a report, the lines of a message begin with `E`."""
    first = next(iter(problem.get("message", "").strip().splitlines()), "failed")
    if not first.endswith("Traceback (most recent call last):"):
        return first
    raised = re.findall(r"^E +([A-Za-z_][\w.]*: (?!Traceback).*)$", problem.text or "", re.MULTILINE)
    return raised[-1] if raised else first


# flagperf vendors new


TEMPLATE = Path(__file__).parents[1] / "testing" / "new_vendor"

TUNED = ("distilbert",)
"""Cases that the template has tuning for."""


@click.command("new")
@click.argument("name")
@click.option("--folder", metavar="DIR", help="Folder to write [default: ./flagperf-NAME].")
@common
def new_vendor(name: str, folder: str | None, as_json: bool) -> None:
    """Write a new adapter package whose tests pass. Replace what is marked `Yours:`."""
    if not re.fullmatch(r"[a-z][a-z0-9]*", name):
        raise BadInput(f"{name!r} is not a vendor word; use one lower-case word of letters and digits, such as acme")
    for given in load_plugins().device_backends():
        if name in (given.value.vendor, *given.value.aliases):
            raise BadInput(f"{name!r} is already the word of {given.adapter}; choose another one")
    if importlib.util.find_spec(f"flagperf_{name}") is not None:
        raise BadInput(f"a package flagperf_{name} is already installed; choose another word, or uninstall it")
    target = Path(folder or f"flagperf-{name}")
    files = write_adapter(name, target)
    if as_json:
        echo_json({"folder": str(target), "files": files})
        return
    for file in files:
        echo_path(target / file)
    test = shlex.join([sys.executable, "-m", "pytest"])
    note(f"next: cd {shlex.quote(str(target))} && {pip_command('install', '-e', '.')} && {test}")


def write_adapter(name: str, target: Path) -> list[str]:
    """Write all files or none. Return their paths in the folder."""
    if exists(target):
        raise BadInput(f"{target} already exists; choose another folder with --folder, or remove it")
    if not is_folder(target.parent):
        raise BadInput(f"{target.parent} is not a folder; create it, or choose another with --folder")
    try:
        with tempfile.TemporaryDirectory(prefix=".flagperf-new-", dir=target.parent) as beside:
            files = _write_files(name, Path(beside) / "package")
            (Path(beside) / "package").rename(target)
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror}") from None
    return files


def _write_files(name: str, root: Path) -> list[str]:
    """Write the filled template, and schemas for editors that know `#:schema` in TOML files."""
    from flagperf.schemas import make_schema  # not at the top: it needs most of flagperf

    words = {"@name@": name, "@Name@": name.capitalize(), "@NAME@": name.upper(), "@core@": version()}
    written = []
    for source in sorted(TEMPLATE.rglob("*.txt")):
        place = str(source.relative_to(TEMPLATE).with_suffix("")).replace("src/", f"src/flagperf_{name}/")
        path = root / _fill(place, words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fill(source.read_text(), words))
        written.append(str(path.relative_to(root)))
    plugins = load_plugins()
    schemas = {"schemas/models.json": make_schema("models", plugins)}
    schemas |= {f"schemas/tuning-{case}.json": make_schema("tuning", plugins, case) for case in TUNED}
    (root / "schemas").mkdir()
    for file, schema in schemas.items():
        (root / file).write_bytes(msgspec.json.format(msgspec.json.encode(schema)) + b"\n")
    return [*written, *schemas]


def _fill(text: str, words: dict[str, str]) -> str:
    return re.sub("|".join(words), lambda found: words[found[0]], text)


@click.group(cls=CommandGroup)
def vendors() -> None:
    """List, write and check vendor adapters."""


@vendors.command("list")
@common
def list_vendors(as_json: bool) -> int:
    """List all adapters, each with what it found on this machine or why it is not used. The exit code is 3 if one of
    them failed."""
    plugins = load_tried_plugins()
    statuses = plugins.statuses()
    found = describe_machine(plugins).vendors
    code = exit_code_of(found, [*plugins.broken_adapters(), *plugins.adapters_without_probes()])
    if as_json:
        echo_json({"vendors": found, "plugins": statuses})
        return code
    rows = []
    for facts in found:
        state = "error" if facts.error or facts.presence is None else facts.presence.state
        rows.append([facts.shown_vendor, facts.adapter, state, describe_finding(facts)])
    # adapters that gave no vendor to ask: broken, not found by their entry point, or with another's word
    asked = {facts.adapter for facts in found}
    unasked = [each for each in statuses if each.distribution.startswith(ADAPTER_PREFIX) and each.adapter not in asked]
    for status in unasked:
        word, why = status.distribution.removeprefix(ADAPTER_PREFIX), status.problem
        rows.append(
            [word, status.adapter, *(("not used", why) if why else ("no vendor", "it gives no device backend"))]
        )
    echo_columns(["VENDOR", "ADAPTER", "STATE", "EVIDENCE OR REASON"], rows)
    for status in statuses:
        if status.problem and status not in unasked:
            note(f"plugin {status.name} ({status.adapter}): {status.problem}")
    return code


vendors.add_command(new_vendor)

vendors.add_command(check_vendor)

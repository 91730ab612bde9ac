"""flagperf pages"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flagperf.bundle.listing import runs_directory
from flagperf.cli import CommandGroup
from flagperf.cli.completers import complete_case, complete_file, complete_vendor
from flagperf.cli.options import common, echo_json, note, runs_dir_option
from flagperf.cli.output import echo, echo_message
from flagperf.errors import BadInput

if TYPE_CHECKING:
    from flagperf_publish.published.page_import import PageReading
    from flagperf_publish.published.page_lint import Known, LintedPage
    from flagperf_publish.published.page_source import SourcePage

FINDINGS = 7
"""The exit code where a page has findings, as for a result that is not what it should be."""


@click.group(cls=CommandGroup)
def pages() -> None:
    """Check published result pages."""


@pages.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE.md...", shell_complete=complete_file)
@click.option(
    "--case", metavar="NAME", shell_complete=complete_case, help="The case of the pages [default: as they say]."
)
@common
def lint(files: tuple[str, ...], case: str | None, as_json: bool) -> int:
    """Mark what on published pages contradicts itself, or the facts of the card and the case.

    Reads pages of training and inference, base and operator pages, and those of `flagperf report --format md`. Each
    finding has a line, the id of its rule (docs/plausibility.md) and the numbers. MFU cells that follow from their
    throughput are listed as well.

    The exit code is 0 without findings, 7 with some, 2 if a file cannot be read.
    """
    from flagperf_publish.published.page_lint import lint_pages

    known = installed(case)
    read, unreadable = read_pages(files)
    found = list(lint_pages(read, known, case))
    linted = [each for each in found if not isinstance(each, BadInput)]
    unreadable += [str(each) for each in found if isinstance(each, BadInput)]
    if as_json:
        echo_json({"schema": 1, "pages": [exported(page) for page in linted]})
    for page in [] if as_json else linted:
        for each in page.findings:
            echo(f"{page.path}:{each.line}: {each.rule}: {each.message}")
        for held in page.recomputed:
            echo(f"{page.path}:{held.line}: {held.message}")
        count = f"{len(page.findings)} finding{'' if len(page.findings) == 1 else 's'}"
        note(f"{page.path}: {page.case or 'no known case'}, {count}")
    for problem in unreadable:
        echo_message(f"flagperf: {problem}")
    has_findings = any(page.findings for page in linted)
    return BadInput.exit_code if unreadable else FINDINGS if has_findings else 0


def installed(case: str | None) -> Known:
    """Return what pages are compared with. Raise BadInput for a case that is not installed."""
    from flagperf.plugins.installed import load_plugins
    from flagperf_publish.published.page_lint import Known
    from flagperf_publish.published.result_pages import installed_cards

    plugins = load_plugins()
    if case is not None:
        plugins.case(case)
    return Known(installed_cards(plugins), {name: found.manifest for name, found in plugins.complete_cases().items()})


def read_pages(files: Sequence[str]) -> tuple[list[SourcePage], list[str]]:
    """Read each file once. Return also why others cannot be read."""
    from flagperf_publish.published.page_source import read_page

    read, unreadable = [], []
    for file in dict.fromkeys(files):
        try:
            read.append(read_page(Path(file)))
        except BadInput as error:
            unreadable.append(str(error))
    return read, unreadable


def exported(page: LintedPage) -> dict[str, object]:
    return {
        "path": page.path,
        "sha256": page.sha256,
        "case": page.case or None,
        "findings": [
            {"rule": each.rule, "line": each.line, "text": str(each.message), "message": each.message}
            for each in page.findings
        ],
        "recomputed": [
            {"cell": each.cell, "line": each.line, "text": str(each.message), "message": each.message}
            for each in page.recomputed
        ],
    }


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="PAGE.md...", shell_complete=complete_file)
@click.option(
    "--case", metavar="NAME", shell_complete=complete_case, help="The case of the pages [default: as they say]."
)
@click.option(
    "--vendor", metavar="WORD", shell_complete=complete_vendor, help="Whose cards they are [default: as they say]."
)
@click.option("--device", metavar="MODEL", help="Which cards they are [default: as they say].")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
@runs_dir_option
@common
def import_pages(
    files: tuple[str, ...],
    case: str | None,
    vendor: str | None,
    device: str | None,
    dry_run: bool,
    runs_dir: str | None,
    as_json: bool,
) -> int:
    """Import published pages as reference results, which reports then show beside runs of the same case.

    Every row becomes a result with its line and the sha256 of the page, graded `typed_by_hand`, in
    references/NAME.toml of the runs directory. Cells that cannot be read are named and left out; what `flagperf pages
    lint` finds is printed. Importing a page again changes nothing.

    The exit code is 0, or 2 if a page cannot be imported; the others are.
    """
    from flagperf_publish.published.page_import import SaidOfPage, import_page
    from flagperf_publish.published.page_lint import lint_pages

    known, directory = installed(case), runs_directory(runs_dir)
    read, problems = read_pages(files)
    done = []
    for page, found in zip(read, lint_pages(read, known, case), strict=True):
        try:
            if isinstance(found, BadInput):
                raise found
            reading = import_page(page, known, SaidOfPage(case, vendor, device))
        except BadInput as error:
            problems.append(f"{error}; nothing of it was imported")
            continue
        outcome, path = _store(reading, directory, dry_run)
        references, remarks = reading.page.references, reading.remarks
        written = {"outcome": outcome, "file": str(path), "references": references, "remarks": remarks}
        done.append({**exported(found), **written})
        if not as_json:
            for each in found.findings:
                note(f"{found.path}:{each.line}: {each.rule}: {each.message}")
            for left in remarks:
                note(f"{found.path}:{left.line}: {left.what}: {left.why}")
            count = f"{len(references)} result{'' if len(references) == 1 else 's'}"
            echo(f"{found.path}: {count} of {reading.page.case}, {outcome}: {path}")
    if as_json:
        echo_json({"schema": 1, "pages": done})
    for problem in problems:
        echo_message(f"flagperf: {problem}")
    return BadInput.exit_code if problems else 0


def _store(reading: PageReading, directory: Path, dry_run: bool) -> tuple[str, Path]:
    """Write the references unless they are there. Return `imported`, `updated` or `unchanged`, and the file."""
    from flagperf.bundle.imported import imported_path, read_imported, write_imported

    path = imported_path(directory, reading.name)
    outcome = "imported"
    if path.exists():
        before = read_imported(path)
        same = (before.case, before.sha256, before.rows) == (reading.page.case, reading.page.sha256, reading.page.rows)
        outcome = "unchanged" if same else "updated"
    if outcome != "unchanged" and not dry_run:
        write_imported(path, reading.page)
    return f"would be {outcome}" if dry_run and outcome != "unchanged" else outcome, path

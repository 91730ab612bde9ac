"""flagperf import"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flagperf.cli.completers import complete_case, complete_file, complete_vendor
from flagperf.cli.options import common, echo_json, note, runs_dir_option
from flagperf.cli.output import echo, echo_message
from flagperf.cli.pages import exported, installed, read_pages
from flagperf.errors import BadInput
from flagperf.store.listing import runs_directory

if TYPE_CHECKING:
    from flagperf.pages.imports import Reading
    from flagperf.pages.lint import LintedPage


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
    from flagperf.pages.imports import Asked, import_page
    from flagperf.pages.lint import lint_pages

    known, directory = installed(case), runs_directory(runs_dir)
    read, problems = read_pages(files)
    done = []
    for page, found in zip(read, lint_pages(read, known, case), strict=True):
        try:
            if isinstance(found, BadInput):
                raise found
            reading = import_page(page, known, Asked(case, vendor, device))
        except BadInput as error:
            problems.append(f"{error}; nothing of it was imported")
            continue
        outcome, path = _store(reading, directory, dry_run)
        done.append(_exported(reading, found, outcome, path))
        if not as_json:
            _print(reading, found, outcome, path)
    if as_json:
        echo_json({"schema": 1, "pages": done})
    for problem in problems:
        echo_message(f"flagperf: {problem}")
    return BadInput.exit_code if problems else 0


def _store(reading: Reading, directory: Path, dry_run: bool) -> tuple[str, Path]:
    """`imported`, `updated` or `unchanged`, with --dry-run `would be`, and the file."""
    from flagperf.store.imported import imported_path, read_imported, write_imported

    path = imported_path(directory, reading.name)
    outcome = "imported"
    if path.exists():
        before = read_imported(path)
        same = (before.case, before.sha256, before.rows) == (reading.page.case, reading.page.sha256, reading.page.rows)
        outcome = "unchanged" if same else "updated"
    if outcome != "unchanged" and not dry_run:
        write_imported(path, reading.page)
    return f"would be {outcome}" if dry_run and outcome != "unchanged" else outcome, path


def _print(reading: Reading, found: LintedPage, outcome: str, path: Path) -> None:
    for each in found.findings:
        note(f"{found.path}:{each.line}: {each.rule}: {each.message}")
    for left in reading.remarks:
        note(f"{found.path}:{left.line}: {left.what}: {left.why}")
    count = len(reading.page.references)
    rows = f"{count} result{'' if count == 1 else 's'} of {reading.page.case}"
    echo(f"{found.path}: {rows}, {outcome}: {path}")


def _exported(reading: Reading, found: LintedPage, outcome: str, path: Path) -> dict[str, Any]:
    return {
        **exported(found),
        "outcome": outcome,
        "file": str(path),
        "references": reading.page.references,
        "remarks": reading.remarks,
    }

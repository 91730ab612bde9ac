"""flagperf pages"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flagperf.cli.completers import complete_case, complete_file
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import common, echo_json, note
from flagperf.cli.output import echo, echo_message
from flagperf.errors import BadInput

if TYPE_CHECKING:
    from flagperf.pages.lint import Known, LintedPage
    from flagperf.pages.source import SourcePage

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
    from flagperf.pages.lint import lint_pages

    known = installed(case)
    read, unreadable = read_pages(files)
    found = list(lint_pages(read, known, case))
    linted = [each for each in found if not isinstance(each, BadInput)]
    unreadable += [str(each) for each in found if isinstance(each, BadInput)]
    if as_json:
        echo_json({"schema": 1, "pages": [exported(page) for page in linted]})
    else:
        for page in linted:
            print_page(page)
    for problem in unreadable:
        echo_message(f"flagperf: {problem}")
    has_findings = any(page.findings for page in linted)
    return BadInput.exit_code if unreadable else FINDINGS if has_findings else 0


def installed(case: str | None) -> Known:
    """What pages are compared with. Raises BadInput for a case that is not installed."""
    from flagperf.pages.cards import installed_cards
    from flagperf.pages.lint import Known
    from flagperf.plugins.installed import load_plugins

    plugins = load_plugins()
    if case is not None:
        plugins.case(case)
    return Known(installed_cards(plugins), {name: found.manifest for name, found in plugins.complete_cases().items()})


def read_pages(files: Sequence[str]) -> tuple[list[SourcePage], list[str]]:
    """Each file once, and why others cannot be read."""
    from flagperf.pages.source import read_page

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


def print_page(page: LintedPage) -> None:
    """One line for each, as compilers print them."""
    for each in page.findings:
        echo(f"{page.path}:{each.line}: {each.rule}: {each.message}")
    for held in page.recomputed:
        echo(f"{page.path}:{held.line}: {held.message}")
    count = len(page.findings)
    note(f"{page.path}: {page.case or 'no known case'}, {count} finding{'' if count == 1 else 's'}")

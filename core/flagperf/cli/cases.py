"""flagperf cases"""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click

from flagperf.api import ListContents
from flagperf.cli import CommandGroup
from flagperf.cli.completers import complete_assignment, complete_case, complete_folder, complete_profile
from flagperf.cli.options import RunRequestCommand, common, config_option, echo_json, note
from flagperf.cli.output import echo, echo_columns, echo_heading
from flagperf.errors import BadInput
from flagperf.plan.data_check import DataCheck, NeededFile, check_data
from flagperf.plugins.installed import Case, load_plugins
from flagperf.plugins.loading import ask
from flagperf.spec.job import RunSpec
from flagperf.units import count, mebibytes


@click.group(cls=CommandGroup)
def cases() -> None:
    """List and show the installed benchmark cases."""


@cases.command("list")
@common
def list_cases(as_json: bool) -> None:
    """List all cases, with the reason where one cannot be used."""
    plugins = load_plugins()
    found = plugins.complete_cases() if as_json else plugins.cases()
    for status in plugins.case_problems():
        note(f"plugin {status.name} ({status.distribution} {status.version}): {status.problem}")
    if as_json:
        echo_json([case.manifest for case in found.values()])
        return
    rows = []
    for name, case in found.items():
        manifest = case.manifest
        profiles = (f"{each} (default)" if each == manifest.default_profile else each for each in manifest.profiles)
        rows.append([name, manifest.kind, manifest.model, manifest.dataset, ", ".join(profiles)])
    echo_columns(["CASE", "KIND", "MODEL", "DATASET", "PROFILES"], rows)


@cases.command()
@click.argument("case", shell_complete=complete_case)
@common
def show(case: str, as_json: bool) -> None:
    """Show one case in detail: profiles, data, values, published results."""
    found = load_plugins().case(case)
    if as_json:
        echo_json(found.manifest)
        return
    from flagperf.cli.output import show as show_document  # not at the top: `cases list` has no use for it
    from flagperf.report.screens import case_report

    show_document(case_report(found.manifest, Path(found.reference.manifest).parent, _contents(found)))


def _contents(case: Case) -> dict[str, list[dict[str, str]]]:
    """Ask the case what it consists of. Return its tables by their titles."""
    reference = case.manifest.listing
    if reference is None:
        return {}
    module, _, name = reference.partition(":")

    def call() -> dict[str, list[dict[str, str]]]:
        function: ListContents = getattr(importlib.import_module(module), name)
        return function()

    found: dict[str, list[dict[str, str]]] = ask(case.plugin, reference, call, dict[str, list[dict[str, str]]])
    return found


# flagperf data


SHOWN_DIGITS = 12
"""The first of a sha256; --json has all."""


@click.group(cls=CommandGroup)
def data() -> None:
    """Check folders of real data before a run."""


@data.command(cls=RunRequestCommand)
@click.argument("case", shell_complete=complete_case)
@click.argument("folder", metavar="DIR", shell_complete=complete_folder)
@click.option(
    "--profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="Configuration of the case [default: the published one].",
)
@click.option(
    "--set",
    multiple=True,
    metavar="KEY=VALUE...",
    shell_complete=complete_assignment,
    help="Change values; can be repeated.",
)
@config_option
@common
def check(case: str, folder: str, profile: str | None, set: tuple[str, ...], config: str | None, as_json: bool) -> None:
    """List everything that a case needs in DIR (a --data-dir): found or missing, its size, rows and sha256.

    What is missing is listed with where to get it and the command that puts it into its place. Then the case itself
    checks the folder as before a run, every row and weight of it. The exit code is 0 if it accepts the folder, else 2.
    """
    spec = RunSpec(case, profile=profile, set=set, config=config, data_dir=folder)
    found = check_data(spec, load_plugins())
    if as_json:
        echo_json(found)
    else:
        _print(found)
    if found.problem:
        raise BadInput(found.problem)


def _print(found: DataCheck) -> None:
    if not found.items:
        echo(f"profile {found.profile} of {found.case} reads no files with these values")
        return
    rows = [_row(file) for item in found.items for file in item.files]
    echo_columns(["STATE", "SIZE", "ROWS", "SHA256", "FILE"], rows)
    for item in found.items:
        if any(file.is_missing for file in item.files):
            needed = item.data
            echo_heading(f"Missing of {needed.name}")
            for url in needed.urls:
                echo(f"  {'from':<8} {url}")
            for label, text in (("take", needed.take), ("licence", needed.licence), ("command", needed.command)):
                if text:
                    filled = re.sub(r"DIR\b", lambda _found: shlex.quote(found.folder), text)
                    echo(f"  {label:<8} {filled}")
    if not found.problem:
        echo(f"{found.case} accepts {found.folder} for profile {found.profile}")
    elif not found.missing:
        echo("all files are there, and the case does not accept them:")


def _row(file: NeededFile) -> list[str]:
    sizes, rows = [each.num_bytes for each in file.files], [each.rows for each in file.files if each.rows is not None]
    digests = [each.sha256 for each in file.files]
    rows_text = count(sum(rows)) if rows else ""
    if rows and file.published_rows not in (None, sum(rows)):
        rows_text += f" of {count(file.published_rows or 0)}"
    name = f"{file.name} ({len(sizes)} files)" if len(sizes) > 1 else file.files[0].path if sizes else file.name
    return [
        file.state,
        mebibytes(sum(sizes)) if sizes else "",
        rows_text,
        (digests[0] or "not read")[:SHOWN_DIGITS] if len(digests) == 1 else "",
        name,
    ]

"""flagperf cases"""

from __future__ import annotations

from pathlib import Path

import click

from flagperf.cli.columns import echo_columns
from flagperf.cli.completers import complete_case
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import common, echo_json, note
from flagperf.plugins import Case, load_plugins


@click.group(cls=CommandGroup)
def cases() -> None:
    """List and show the installed benchmark cases."""


@cases.command("list")
@common
def list_cases(as_json: bool) -> None:
    """List all cases, with the reason where one cannot be used."""
    plugins = load_plugins()
    found = plugins.cases()
    for status in plugins.case_problems():
        note(f"plugin {status.name} ({status.distribution} {status.version}): {status.problem}")
    if as_json:
        echo_json([case.manifest for case in found.values()])
        return
    rows = [
        [name, case.manifest.kind, case.manifest.model, case.manifest.dataset, _profiles(case)]
        for name, case in found.items()
    ]
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
    from flagperf.cli.terminal import show as show_document  # not at the top: `cases list` has no use for it
    from flagperf.report import case_report

    show_document(case_report(found.manifest, Path(found.reference.manifest).parent))


def _profiles(case: Case) -> str:
    default = case.manifest.default_profile
    return ", ".join(f"{name} (default)" if name == default else name for name in case.manifest.profiles)

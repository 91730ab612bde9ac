"""flagperf cases"""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from flagperf.api import ListContents
from flagperf.cli.columns import echo_columns
from flagperf.cli.completers import complete_case
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import common, echo_json, note
from flagperf.plugins.installed import Case, load_plugins
from flagperf.plugins.loading import ask


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

    show_document(case_report(found.manifest, Path(found.reference.manifest).parent, _contents(found)))


def _contents(case: Case) -> dict[str, list[dict[str, str]]]:
    """What the case says it consists of, as tables."""
    reference = case.manifest.listing
    if reference is None:
        return {}
    module, _, name = reference.partition(":")

    def call() -> dict[str, list[dict[str, str]]]:
        function: ListContents = getattr(importlib.import_module(module), name)
        return function()

    found: dict[str, list[dict[str, str]]] = ask(case.plugin, reference, call, dict[str, list[dict[str, str]]])
    return found


def _profiles(case: Case) -> str:
    default = case.manifest.default_profile
    return ", ".join(f"{name} (default)" if name == default else name for name in case.manifest.profiles)

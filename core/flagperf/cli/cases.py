"""flagperf cases"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flagperf.cli.completers import complete_case
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import common, echo_columns, echo_json, note
from flagperf.plugins import Case, load_plugins
from flagperf.spec import flatten
from flagperf.units import setting


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
    manifest = found.manifest
    target = f"{manifest.target.metric}, value of {manifest.target.key}" if manifest.target else "none"
    echo_columns(
        [manifest.name, manifest.title["en"]],
        [
            ["task", manifest.task["en"]],
            ["model", manifest.model],
            ["dataset", manifest.dataset],
            ["precisions", ", ".join(manifest.precisions)],
            ["target", target],
            ["needs", ", ".join(manifest.requires)],
            ["folder", str(Path(found.reference.manifest).parent)],
        ],
    )
    _show_profiles(found)
    _show_values(found)
    _show_references(found)


def _profiles(case: Case) -> str:
    default = case.manifest.default_profile
    return ", ".join(f"{name} (default)" if name == default else name for name in case.manifest.profiles)


def _show_profiles(case: Case) -> None:
    click.echo("\nProfiles")
    for name, profile in case.manifest.profiles.items():
        click.echo(f"  {name}: {profile.about['en']}")
        if profile.files:
            click.echo("    --data-dir must contain:")
        for file in profile.files:
            click.echo(f"      {file}")


def _show_values(case: Case) -> None:
    click.echo("\nValues (change one with --set KEY=VALUE)")
    profiles = {name: dict(flatten(profile.values)) for name, profile in case.manifest.profiles.items()}
    rows = [
        [key, *(setting(values.get(key, default)) for values in profiles.values())]
        for key, default in flatten(case.manifest.values)
    ]
    echo_columns(["  KEY", *profiles], [[f"  {row[0]}", *row[1:]] for row in rows])


def _show_references(case: Case) -> None:
    from flagperf.report import print_table, published_table  # lazy: `cases list` does not need it

    table = published_table(case.manifest)
    if table.rows:
        click.echo()
        print_table("Published results (of other machines, for comparison)", table, color=False, file=sys.stdout)
    else:
        click.echo("\nPublished results: none")
    bare = [reference for reference in case.manifest.references if not reference.values]
    if bare:
        names = ", ".join(f"{each.vendor} {each.device} {each.nodes}x{each.devices_per_node}" for each in bare)
        click.echo(f"Published without figures: {names}")

"""flagperf plan"""

from __future__ import annotations

import shlex
from typing import Any

import click
import msgspec

from flagperf.api import Peak
from flagperf.cli.env import environment_rows
from flagperf.cli.options import RunRequestCommand, common, echo_columns, echo_json, run_request
from flagperf.plan import Plan, make_plan
from flagperf.plugins import load_plugins
from flagperf.spec import RunSpec, flatten
from flagperf.units import setting


@click.command(cls=RunRequestCommand)
@run_request
@common
def plan(as_json: bool, **request: Any) -> None:
    """What a run would do: values with the layer each came from, commands, environment. Starts nothing."""
    print_plan(make_plan(msgspec.convert(request, RunSpec), load_plugins(), needs_worker=False), as_json)


def print_plan(made: Plan, as_json: bool) -> None:
    if as_json:
        echo_json({"job": made.job, "commands": made.commands, "vendor": made.vendor_note, "nodes": made.nodes})
        return
    job = made.job
    missing = [text for node in made.nodes for text in node.missing_requirements]
    echo_columns(
        ["case", f"{job.case} (version {job.case_version})"],
        [
            ["profile", job.profile],
            ["vendor", made.vendor_note],
            ["adapter", job.adapter],
            ["shape", f"{job.shape}, {job.world_size} workers{', oversubscribed' if job.oversubscribed else ''}"],
            ["precision", f"{job.precision.name} (storage {job.precision.storage}, compute {job.precision.compute})"],
            ["peak", _peak_text(job.peak)],
            ["data", job.data_dir or "made by the case"],
            *([["missing", ", ".join(dict.fromkeys(missing))]] if missing else []),
        ],
    )
    click.echo("\nValues")
    rows = [[f"  {key}", setting(value), job.config.layers[key]] for key, value in flatten(job.config.values)]
    echo_columns(["  KEY", "VALUE", "FROM"], rows)
    for node, command in zip(job.nodes, made.commands, strict=True):
        click.echo(f"\nNode {node.index} ({node.host}), devices {', '.join(device.id for device in node.devices)}")
        click.echo(f"  {shlex.join(command.argv)}")
        if made.env_script:
            click.echo(f"  . {shlex.quote(made.env_script)}  # run once before the workers, its variables taken over")
        for entry in command.settings:
            unless = ", unless it is set already" if entry.only_if_unset else ""
            click.echo(f"  {entry.name}={entry.value}  # {entry.reason}{unless}")
        for name in command.remove:
            click.echo(f"  unset {name}  # it must never reach the workers")
    click.echo(f"\nEnvironment of {made.nodes[0].host}")
    echo_columns(["  FACT", "VALUE"], [[f"  {name}", value] for name, value in environment_rows(made.nodes[0])])


def _peak_text(peak: Peak | None) -> str:
    return f"{peak.value:g} FLOP/s ({peak.source}, {peak.confidence})" if peak else "unknown"

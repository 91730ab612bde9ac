"""flagperf plan"""

from __future__ import annotations

import shlex
from typing import Any

import click
import msgspec

from flagperf.cli.env import environment_rows
from flagperf.cli.options import RunRequestCommand, common, echo_columns, echo_json, run_request
from flagperf.plan import CardEstimate, MemoryEstimate, Plan, estimate_for_model, make_plan, num_devices
from flagperf.plugins import load_plugins
from flagperf.spec import Job, Resolved, RunSpec, flatten
from flagperf.units import gib, setting


@click.command(cls=RunRequestCommand)
@run_request
@click.option("--device-model", metavar="NAME", help="Only estimate memory, for cards that need not be here, as C500.")
@common
@click.pass_context
def plan(ctx: click.Context, /, as_json: bool, device_model: str | None, **request: Any) -> None:
    """What a run would do: values with the layer each came from, commands, environment. Starts nothing.

    With --parallel and without --devices, for as many devices as the layout needs.
    """
    is_given = ctx.get_parameter_source("devices") is not click.core.ParameterSource.DEFAULT
    if request["parallel"] and not is_given:
        request["devices"] = max(1, num_devices(request["parallel"]) // request["nodes"])
    spec, plugins = msgspec.convert(request, RunSpec), load_plugins()
    if device_model is None:
        print_plan(make_plan(spec, plugins, needs_worker=False), as_json)
    else:
        print_estimate(estimate_for_model(spec, plugins, device_model), as_json)


def print_estimate(found: CardEstimate, as_json: bool) -> None:
    if as_json:
        echo_json(found)
        return
    rows = [["profile", found.profile], ["shape", found.shape], ["device model", found.device_model]]
    echo_columns(["case", found.case], rows)
    _print_values(found.config)
    _print_memory(found.memory)


def _print_values(config: Resolved) -> None:
    click.echo("\nValues")
    rows = [[f"  {key}", setting(value), config.layers[key]] for key, value in flatten(config.values)]
    echo_columns(["  KEY", "VALUE", "FROM"], rows)


def _print_memory(memory: MemoryEstimate) -> None:
    click.echo("\nMemory of the fullest rank, estimated (tensors alone)")
    rows = [[f"  {name}", f"{gib(count)} GiB"] for name, count in memory.parts.items()]
    total = "unknown" if memory.total_bytes is None else f"{gib(memory.total_bytes)} GiB"
    rows += [["  all", f"{gib(memory.used_bytes)} GiB"], ["  the card has", f"{total} ({memory.total_source})"]]
    echo_columns(["  PART", "SIZE"], rows)
    if memory.total_bytes is not None and memory.used_bytes > memory.total_bytes:
        click.echo("  It does not fit: more devices, more ways of TP or PP, or model.recompute=true need less.")


def print_plan(made: Plan, as_json: bool) -> None:
    if as_json:
        echo_json(
            {
                "job": made.job, "commands": made.commands, "vendor": made.vendor_note, "nodes": made.nodes,
                "memory": made.memory,
            }
        )  # fmt: skip
        return
    job = made.job
    missing = [text for node in made.nodes for text in node.missing_requirements]
    echo_columns(
        ["case", f"{job.case} (version {job.case_version})"],
        [
            ["profile", job.profile],
            ["vendor", made.vendor_note],
            ["adapter", job.adapter],
            ["shape", shape_text(job)],
            ["precision", f"{job.precision.name} (storage {job.precision.storage}, compute {job.precision.compute})"],
            ["peak", peak_text(job)],
            ["data", job.data_dir or "made by the case"],
            *([["missing", ", ".join(dict.fromkeys(missing))]] if missing else []),
        ],
    )
    _print_values(job.config)
    if made.memory is not None:
        _print_memory(made.memory)
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


def shape_text(job: Job) -> str:
    workers = "1 worker" if job.world_size == 1 else f"{job.world_size} workers"
    return f"{job.shape}, {workers}{', oversubscribed' if job.oversubscribed else ''}"


def peak_text(job: Job) -> str:
    peak = job.peak
    if peak is None:
        return "unknown"
    is_unused = peak.confidence == "low" and not job.accept_low_peaks
    advice = "; MFU does not use it without --accept-low-peaks" if is_unused else ""
    return f"{peak.value:g} FLOP/s ({peak.source}, {peak.confidence}{advice})"

"""flagperf plan"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from flagperf.api import LaunchCommand, Peak, Precision
from flagperf.bundle.listing import runs_directory
from flagperf.cli.completers import complete_device_model
from flagperf.cli.nodes import environment_rows
from flagperf.cli.options import RunRequestCommand, common, echo_json, note, run_request, run_spec
from flagperf.cli.output import echo, echo_columns, echo_heading
from flagperf.errors import BadInput, DoesNotFit
from flagperf.fleet.reach import reach_nodes
from flagperf.plan.card_models import ModelPlan, plan_for_model
from flagperf.plan.case_checks import MemoryEstimate
from flagperf.plan.plan import Plan, make_plan
from flagperf.plan.settings import UNKNOWN, num_devices
from flagperf.plugins.installed import load_plugins
from flagperf.spec.job import Job
from flagperf.spec.values import Resolved, flatten
from flagperf.units import gib, percent, setting

TIGHT_SHARE = 0.9
"""The share of a card's memory above which what an estimate leaves out may decide."""


@click.command(cls=RunRequestCommand)
@run_request
@click.option(
    "--device-model",
    metavar="NAME",
    shell_complete=complete_device_model,
    help="Plan for this card model, present or not, for example C500 [default profile: the published one].",
)
@common
@click.pass_context
def plan(ctx: click.Context, /, as_json: bool, device_model: str | None, **request: Any) -> None:
    """Show what a run would do, without starting it: values and their layers, commands, environment.

    With --parallel and without --devices, it plans for as many devices as the layout needs. Where the case cannot use
    its data, the plan is printed, the reason follows on stderr and the exit code is 2. With --device-model, no
    machine is asked and no data is read: what depends on them is listed as unknown. Where the estimated memory is
    more than the card has, the plan is printed and the exit code is 8; `flagperf run` does not refuse such a run.
    """
    is_given = ctx.get_parameter_source("devices") is not click.core.ParameterSource.DEFAULT
    if request["parallel"] and not is_given:
        request["devices"] = max(1, num_devices(request["parallel"]) // request["nodes"])
    spec, plugins = run_spec(request, runs_directory(None)), load_plugins()
    if device_model is None:
        with reach_nodes(spec, plugins) as fleet:
            made = make_plan(spec, plugins, fleet, needs_worker=False)
        print_plan(made, as_json)
    else:
        print_model_plan(plan_for_model(spec, plugins, device_model), spec.accept_low_peaks, as_json)


def print_model_plan(made: ModelPlan, accept_low_peaks: bool, as_json: bool) -> None:
    """Print a plan without a machine. Raise DoesNotFit after everything was printed."""
    if as_json:
        echo_json(made)
        _check_fit(made.memory, is_printed=False)
        return
    echo_columns(
        ["case", f"{made.case} (version {made.case_version})"],
        [
            ["profile", made.profile],
            ["vendor", made.vendor],
            ["adapter", made.adapter],
            ["device model", f"{made.device_model} (may be absent here)"],
            ["shape", f"{made.shape}, {_workers(made.nodes * made.devices)}"],
            ["precision", precision_text(made.precision)],
            ["peak", peak_text(made.peak, accept_low_peaks)],
        ],
    )
    _print_values(made.config)
    _print_peaks(made.peaks)
    if made.memory is not None:
        _print_memory(made.memory)
    echo_heading(f"Node 0 of {made.nodes}, as far as it can be known ({UNKNOWN}: from what the node has)")
    _print_command(made.command, made.env_script)
    echo_heading("Unknown without the machine")
    echo_columns(["  WHAT", "WHY"], [[f"  {what}", why] for what, why in made.unknown.items()])
    _check_fit(made.memory, is_printed=True)


def _print_peaks(peaks: Sequence[Peak]) -> None:
    echo_heading("Peaks of this model" + ("" if peaks else ": none known"))
    if peaks:
        units = {"memory_bandwidth": "bytes/s", "link_bandwidth": "bytes/s", "tdp": "W"}
        rows = [
            [f"  {peak.row}", f"{peak.value:g} {units.get(peak.row, 'FLOP/s')}", peak.confidence, peak.source]
            for peak in peaks
        ]
        echo_columns(["  ROW", "VALUE", "CONFIDENCE", "SOURCE"], rows)


def _print_values(config: Resolved) -> None:
    echo_heading("Values")
    rows = [[f"  {key}", setting(value), config.layers[key]] for key, value in flatten(config.values)]
    echo_columns(["  KEY", "VALUE", "FROM"], rows)


def _print_memory(memory: MemoryEstimate) -> None:
    echo_heading("Memory of the fullest rank, estimated (tensors alone)")
    rows = [[f"  {name}", f"{gib(count)} GiB"] for name, count in memory.parts.items()]
    total = "unknown" if memory.total_bytes is None else f"{gib(memory.total_bytes)} GiB"
    rows += [["  all", f"{gib(memory.used_bytes)} GiB"], ["  the card has", f"{total} ({memory.total_source})"]]
    echo_columns(["  PART", "SIZE"], rows)
    if memory.share is not None and memory.share > TIGHT_SHARE:
        echo(f"  {_tightness(memory.share)}")


def _tightness(share: float) -> str:
    if share > 1:
        return f"That is {percent(share)} of the card: it does not fit."
    needs = "framework, collective buffers and fragmentation need room as well"
    return f"That is {percent(share)} of the card, which is tight: {needs}."


def _check_fit(memory: MemoryEstimate | None, is_printed: bool) -> None:
    """Raise DoesNotFit for an estimate above the card's memory. Note a tight one, unless that is printed."""
    if memory is None or memory.share is None or memory.total_bytes is None:
        return
    if memory.share > 1:
        raise DoesNotFit(
            f"the fullest rank needs {gib(memory.used_bytes)} GiB by the estimate, the card has "
            f"{gib(memory.total_bytes)} GiB; use more TP or PP, a smaller batch, or recomputation where the case has it"
        )
    if memory.share > TIGHT_SHARE and not is_printed:
        note(_tightness(memory.share))


def print_plan(made: Plan, as_json: bool) -> None:
    """Print a plan. Raise what is wrong with data or memory after everything was printed."""
    if as_json:
        echo_json(
            {
                "job": made.job,
                "commands": made.commands,
                "vendor": made.vendor_note,
                "nodes": made.nodes,
                "memory": made.memory,
                "data_problem": made.data_problem,
            }
        )
    else:
        _print_whole(made)
    if made.data_problem:
        raise BadInput(made.data_problem)
    _check_fit(made.memory, is_printed=not as_json)


def _print_whole(made: Plan) -> None:
    job = made.job
    broken = [(node.host, each) for node in made.nodes for each in node.broken_devices(job.vendor)]
    missing = [str(each) for node in made.nodes for each in node.missing_requirements]
    data = job.data_dir or "made by the case"
    echo_columns(
        ["case", f"{job.case} (version {job.case_version})"],
        [
            ["profile", job.profile],
            ["vendor", made.vendor_note],
            ["adapter", job.adapter],
            ["shape", shape_text(job)],
            ["precision", precision_text(job.precision)],
            ["peak", peak_text(job.peak, job.accept_low_peaks)],
            ["data", "cannot be used: the reason is below" if made.data_problem else data],
            *([["missing", ", ".join(dict.fromkeys(missing))]] if missing else []),
            *(["problem", f"{host}: {device.id} cannot be used: {device.problem}"] for host, device in broken),
        ],
    )
    _print_values(job.config)
    if made.memory is not None:
        _print_memory(made.memory)
    for node, command in zip(job.nodes, made.commands, strict=True):
        echo_heading(f"Node {node.index} ({node.host}), devices {', '.join(device.id for device in node.devices)}")
        if made.agent_commands:
            echo(f"  {shlex.join(made.agent_commands[node.index])}  # reaches its agent, which starts:")
        _print_command(command, made.env_script)
    echo_heading(f"Environment of {made.nodes[0].host}")
    echo_columns(["  FACT", "VALUE"], [[f"  {name}", value] for name, value in environment_rows(made.nodes[0])])


def _print_command(command: LaunchCommand, env_script: str) -> None:
    echo(f"  {shlex.join(command.argv)}")
    if env_script:
        echo(f"  . {shlex.quote(env_script)}  # run once before the workers, to take over its variables")
    for entry in command.settings:
        unless = ", unless it is set already" if entry.only_if_unset else ""
        found = "; the node finds it out" if entry.value == UNKNOWN else ""
        echo(f"  {entry.name}={entry.value}  # {entry.reason}{found}{unless}")
    for name in command.remove:
        echo(f"  unset {name}  # it must never reach the workers")


def shape_text(job: Job) -> str:
    return f"{job.shape}, {_workers(job.world_size)}{', oversubscribed' if job.oversubscribed else ''}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def precision_text(precision: Precision) -> str:
    if precision.is_per_row:
        return precision.name
    return f"{precision.name} (storage {precision.storage}, compute {precision.compute})"


def peak_text(peak: Peak | None, accept_low_peaks: bool) -> str:
    if peak is None:
        return "unknown"
    is_unused = peak.confidence == "low" and not accept_low_peaks
    advice = "; MFU does not use it without --accept-low-peaks" if is_unused else ""
    return f"{peak.value:g} FLOP/s ({peak.source}, {peak.confidence}{advice})"

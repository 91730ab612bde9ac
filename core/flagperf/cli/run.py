"""flagperf run"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from flagperf.cli.detached import finishing, submit
from flagperf.cli.options import (
    RunRequestCommand,
    common,
    echo_json,
    no_published_option,
    note,
    run_request,
    runs_dir_option,
)
from flagperf.cli.output import echo, echo_json_text, echo_message
from flagperf.cli.plan import print_plan
from flagperf.cli.progress import live_progress
from flagperf.cli.terminal import show
from flagperf.commands import flagperf_command
from flagperf.kinds import KINDS
from flagperf.launch import raise_on_signals
from flagperf.plan import Plan, layout_text, make_plan, reach_nodes
from flagperf.plugins import Plugins, load_plugins
from flagperf.report import run_report, to_json
from flagperf.run import execute
from flagperf.spec import RunSpec
from flagperf.store.bundle import check_writable
from flagperf.store.listing import runs_directory
from flagperf.store.run import RecordedRun


@click.command(cls=RunRequestCommand)
@run_request
@runs_dir_option
@click.option("--dry-run", is_flag=True, help="Print the plan, without running it.")
@click.option("--detach", is_flag=True, help="Put the run into the cluster's queue and return; see `runs attach`.")
@click.option("--detached-in", metavar="DIR", hidden=True, help="Where a run in a queue says how it ended.")
@no_published_option
@common
def run(
    runs_dir: str | None,
    dry_run: bool,
    detach: bool,
    detached_in: str | None,
    no_published: bool,
    as_json: bool,
    **request: Any,
) -> int:
    """Run a case and record it in a bundle, from which every metric can be recomputed."""
    raise_on_signals()
    plugins, directory = load_plugins(), runs_directory(runs_dir)
    check_writable(directory)
    spec = msgspec.convert(request, RunSpec)
    if detach:
        return _detach(spec, plugins, directory, as_json)
    with finishing(detached_in) as code:
        code.append(_run(spec, plugins, directory, runs_dir, dry_run, no_published, as_json))
    return code[0]


def _detach(spec: RunSpec, plugins: Plugins, directory: Path, as_json: bool) -> int:
    plugins.case(spec.case)  # what is wrong with it is said here, not in the queue
    submitted = submit(spec, plugins, directory)
    if as_json:
        echo_json(submitted)
        return 0
    echo(f"job {submitted.job} of cluster {submitted.cluster}")
    for word in ("attach", "cancel"):
        note(f"{word}: {flagperf_command('runs', word, submitted.job)}")
    return 0


def _run(
    spec: RunSpec,
    plugins: Plugins,
    directory: Path,
    runs_dir: str | None,
    dry_run: bool,
    no_published: bool,
    as_json: bool,
) -> int:
    with reach_nodes(spec, plugins) as fleet:
        plan = make_plan(spec, plugins, fleet, needs_worker=not dry_run)
        if dry_run:
            print_plan(plan, as_json)
            return 0
        _announce(plan)
        with live_progress(KINDS[plan.job.kind]) as on_progress:
            recorded = execute(plan, fleet, directory, on_progress)
    _print_result(recorded, as_json, no_published)
    note(f"next: {flagperf_command(*page_command(recorded, runs_dir))}")
    assert recorded.run.ending is not None
    return recorded.run.ending.exit_code


def _announce(plan: Plan) -> None:
    job, profile = plan.job, plan.manifest.profiles[plan.job.profile]
    note(f"vendor: {plan.vendor_note}")
    asked = "" if plan.spec.profile else " (the case's default)"
    note(f"case: {job.case}, profile {job.profile}{asked}: {profile.about['en']}")
    crowded = ", more workers than cores" if job.oversubscribed else ""
    layout = layout_text(job.config.values)
    spread = f" in {layout}" if layout else ""
    note(f"shape: {job.shape}{spread}{crowded}; precision: {job.precision.name}")
    training = job.config.values.get("training", {})
    if 0 < training.get("max_steps", 0) <= training.get("warmup_steps", 0):
        note("note: training.max_steps is not above training.warmup_steps: no throughput will be measured")


def _print_result(recorded: RecordedRun, as_json: bool, no_published: bool) -> None:
    ending = recorded.run.ending
    assert ending is not None
    if as_json:
        echo_json_text(to_json([recorded]))
    else:
        show(run_report([recorded], published=not no_published))
    if ending.status != "succeeded":
        echo_message(f"flagperf: the run ended as {ending.status}: {ending.reason}")


def page_command(recorded: RecordedRun, runs_dir: str | None) -> list[str]:
    """What prints the run's page: it is found by its id, in the same runs directory."""
    where = ["--runs-dir", runs_dir] if runs_dir else []
    allowed = ["--allow-simulated"] if recorded.run.simulated else []
    return ["report", recorded.run.id, *where, "--format", "md", *allowed]

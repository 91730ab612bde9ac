"""flagperf run"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flagperf.cli.completers import complete_assignment
from flagperf.cli.detached import finishing, note_run, submit
from flagperf.cli.imported import beside_imported, check_imported
from flagperf.cli.options import (
    RunRequestCommand,
    common,
    echo_json,
    no_published_option,
    note,
    run_request,
    run_spec,
    runs_dir_option,
)
from flagperf.cli.output import echo, echo_json_text, echo_message
from flagperf.cli.plan import print_plan
from flagperf.cli.progress import live_progress
from flagperf.cli.repeat import next_command, print_group, run_repeatedly, worst_exit_code
from flagperf.cli.terminal import show
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.launch import raise_on_signals
from flagperf.plan import (
    Plan,
    check_reach,
    check_values,
    layout_text,
    make_plan,
    other_setting,
    reach_nodes,
    refuse_equal,
)
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.report import run_report, to_json
from flagperf.run import execute
from flagperf.spec import RunSpec
from flagperf.store.bundle import check_writable
from flagperf.store.listing import runs_directory
from flagperf.store.run import RecordedRun, RunGroup

MAX_REPEATS = 1000


@click.command(cls=RunRequestCommand)
@run_request
@runs_dir_option
@click.option("--dry-run", is_flag=True, help="Print the plan, without running it.")
@click.option("--detach", is_flag=True, help="Put the run into the cluster's queue and return; see `runs attach`.")
@click.option("--detached-in", metavar="DIR", hidden=True, help="Where a run in a queue says how it ended.")
@click.option(
    "--repeat",
    type=click.IntRange(1, MAX_REPEATS),
    default=1,
    metavar="N",
    help="Make N complete runs, one after the other: a group, which `compare` takes as one side.",
)
@click.option(
    "--interleave-with",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_assignment,
    help="With --repeat: take turns with this other setting (A B, B A, ...), N runs of each; repeatable.",
)
@no_published_option
@common
def run(
    runs_dir: str | None,
    dry_run: bool,
    detach: bool,
    detached_in: str | None,
    repeat: int,
    changes: tuple[str, ...],
    no_published: bool,
    as_json: bool,
    **request: Any,
) -> int:
    """Run a case and record it in a bundle, from which every metric can be recomputed.

    With --repeat, every run is a bundle of its own, and what they say together is printed at the end. The exit code is
    that of the worst. Ctrl-C ends the run and the group; so does a first run without results.
    """
    raise_on_signals()
    plugins, directory = load_plugins(), runs_directory(runs_dir)
    check_writable(directory)
    check_imported(directory, no_published)
    spec = run_spec(request, directory)
    _check_repeats(repeat, changes, dry_run)
    arms = {"A": spec, "B": other_setting(spec, changes)} if changes else {"": spec}
    if detach:
        return _detach(arms, plugins, directory, _repeat_options(repeat, changes), as_json)
    with finishing(detached_in) as code:
        if repeat == 1:
            code.append(_run(spec, plugins, directory, runs_dir, dry_run, detached_in, no_published, as_json))
        else:
            code.append(_run_group(arms, repeat, plugins, directory, runs_dir, dry_run, detached_in, as_json))
    return code[0]


def _check_repeats(repeat: int, changes: Sequence[str], dry_run: bool) -> None:
    if changes and repeat < 2:
        raise BadInput("--interleave-with needs --repeat N, at least 2: how many runs of each setting")
    if changes and dry_run:
        raise BadInput("--dry-run prints one plan; leave out --interleave-with, and give the other values with --set")


def _repeat_options(repeat: int, changes: Sequence[str]) -> list[str]:
    words = ["--repeat", str(repeat)] if repeat > 1 else []
    return [*words, *(word for change in changes for word in ("--interleave-with", change))]


def _detach(arms: Mapping[str, RunSpec], plugins: Plugins, directory: Path, more: Sequence[str], as_json: bool) -> int:
    for spec in arms.values():
        check_values(spec, plugins)  # what is wrong is said here, not in the queue
        check_reach(spec, plugins)
    submitted = submit(next(iter(arms.values())), plugins, directory, more)
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
    detached_in: str | None,
    no_published: bool,
    as_json: bool,
) -> int:
    with reach_nodes(spec, plugins) as fleet:
        plan = make_plan(spec, plugins, fleet, needs_worker=not dry_run)
        if dry_run:
            print_plan(plan, as_json)
            return 0
        _announce(plan)
        note_run(detached_in, plan.job.run_id)
        with live_progress(KINDS[plan.job.kind]) as on_progress:
            recorded = execute(plan, fleet, directory, on_progress)
    _print_result(beside_imported([recorded], directory, no_published)[0], as_json, no_published)
    note(f"next: {flagperf_command(*page_command(recorded, runs_dir))}")
    assert recorded.run.ending is not None
    return recorded.run.ending.exit_code


def _run_group(
    specs: Mapping[str, RunSpec],
    repeat: int,
    plugins: Plugins,
    directory: Path,
    runs_dir: str | None,
    dry_run: bool,
    detached_in: str | None,
    as_json: bool,
) -> int:
    """All runs have one allocation, and one plan for each setting."""
    with reach_nodes(next(iter(specs.values())), plugins) as fleet:
        plans = {arm: make_plan(spec, plugins, fleet, needs_worker=not dry_run) for arm, spec in specs.items()}
        refuse_equal(list(plans.values()))
        if dry_run:
            print_plan(plans[""], as_json)
            note(f"{repeat} runs of this plan")
            return 0
        for plan in plans.values():
            _announce(plan)

        def execute_one(plan: Plan, group: RunGroup) -> RecordedRun:
            note_run(detached_in, plan.job.run_id)
            with live_progress(KINDS[plan.job.kind]) as on_progress:
                return execute(plan, fleet, directory, on_progress, group)

        done = run_repeatedly(plans, repeat, execute_one)
    print_group(done, directory, as_json)
    note(f"next: {next_command(done, runs_dir)}")
    return worst_exit_code(done)


def _announce(plan: Plan) -> None:
    job, profile = plan.job, plan.manifest.profiles[plan.job.profile]
    note(f"vendor: {plan.vendor_note}")
    asked = "" if plan.spec.profile else " (the case's default)"
    note(f"case: {job.case}, profile {job.profile}{asked}: {profile.about['en']}")
    crowded = ", more workers than cores" if job.oversubscribed else ""
    layout = layout_text(job.config.values)
    spread = f" in {layout}" if layout else ""
    note(f"shape: {job.shape}{spread}{crowded}; precision: {job.precision.name}")
    if job.record_steps:
        note(f"operators: recorded in the last {job.record_steps} steps, which are not measured")
    if job.recording is not None:
        (part,), origin = job.recording.parts, job.recording
        of_run = f"{origin.run_id} ({origin.case}, {origin.precision}, {origin.vendor} {origin.device})"
        note(f"operators: {len(part.calls)} different calls, recorded by rank {part.ranks[0]} of run {of_run}")
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
    recorded_operators = recorded.run.recorded
    if recorded_operators is not None and recorded_operators.problem is not None:
        echo_message(f"flagperf: --record-operators: {recorded_operators.problem}")
    if ending.status != "succeeded":
        echo_message(f"flagperf: the run ended as {ending.status}: {ending.reason}")


def page_command(recorded: RecordedRun, runs_dir: str | None) -> list[str]:
    """What prints the run's page: it is found by its id, in the same runs directory."""
    where = ["--runs-dir", runs_dir] if runs_dir else []
    allowed = ["--allow-simulated"] if recorded.run.simulated else []
    return ["report", recorded.run.id, *where, "--format", "md", *allowed]

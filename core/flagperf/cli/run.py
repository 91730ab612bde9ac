"""flagperf run"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flagperf.bundle.bundle import check_writable
from flagperf.bundle.imported import beside_imported, check_imported
from flagperf.bundle.listing import runs_directory
from flagperf.bundle.run_record import EXIT_CODES, RecordedRun, Run, RunGroup, Status
from flagperf.cli.completers import complete_assignment
from flagperf.cli.options import (
    RunRequestCommand,
    common,
    echo_json,
    note,
    published_option,
    run_request,
    run_spec,
    runs_dir_option,
)
from flagperf.cli.output import echo, echo_json_text, echo_message, show
from flagperf.cli.progress import live_progress
from flagperf.cli.queue import finishing, note_run, submit
from flagperf.errors import BadInput
from flagperf.fleet.reach import check_reach
from flagperf.fleet.signals import raise_on_signals
from flagperf.fleet.supervision import OnProgress
from flagperf.kinds import KINDS
from flagperf.plan.plan import Plan, check_values
from flagperf.plan.settings import layout_text
from flagperf.plugins.installed import load_plugins
from flagperf.report.screens import comparison_report, repeats_report, run_report
from flagperf.report.summary import summarise
from flagperf.run import Session, open_session, other_setting
from flagperf.spec.job import RunSpec
from flagperf.text import flagperf_command

MAX_REPEATS = 1000

WORST_FIRST: tuple[Status, ...] = (
    "interrupted",
    "failed",
    "out_of_memory",
    "timed_out",
    "unsupported",
    "target_missed",
    "succeeded",
)


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
@published_option
@common
def run(
    runs_dir: str | None,
    dry_run: bool,
    detach: bool,
    detached_in: str | None,
    repeat: int,
    changes: tuple[str, ...],
    published: bool | None,
    as_json: bool,
    **request: Any,
) -> int:
    """Run a case and record it in a bundle, from which every metric can be recomputed.

    With --repeat, every run has its own bundle, and a summary of all runs is printed at the end. The exit code is the
    worst of all runs. Ctrl-C stops the run and the group; so does a first run without results.
    """
    raise_on_signals()
    directory = runs_directory(runs_dir)
    check_imported(directory, published)
    spec = run_spec(request, directory)
    if changes and repeat < 2:
        raise BadInput("--interleave-with needs --repeat N, at least 2: how many runs of each setting")
    if changes and dry_run:
        raise BadInput("--dry-run prints one plan; leave out --interleave-with, and give the other values with --set")
    arms = {"A": spec, "B": other_setting(spec, changes)} if changes else {"": spec}
    if detach:
        return put_into_queue(arms, directory, repeat, changes, as_json)
    with finishing(detached_in) as code:
        with open_session(arms, directory, needs_worker=not dry_run) as session:
            done = [] if dry_run else make_runs(session, repeat, detached_in)
        if dry_run:
            from flagperf.cli.plan import print_plan  # not at the top: a run has no use for it

            print_plan(session.plans[""], as_json)
            if repeat > 1:
                note(f"{repeat} runs of this plan")
        else:
            print_runs(done, directory, published, as_json)
            note(f"next: {flagperf_command(*next_command(done, runs_dir))}")
        code.append(worst_exit_code(done))
    return code[0]


def put_into_queue(
    arms: Mapping[str, RunSpec], directory: Path, repeat: int, changes: Sequence[str], as_json: bool
) -> int:
    check_writable(directory)
    plugins = load_plugins()
    for spec in arms.values():
        check_values(spec, plugins)  # what is wrong is said here, not in the queue
        check_reach(spec, plugins)
    more = ["--repeat", str(repeat)] if repeat > 1 else []
    more += [word for change in changes for word in ("--interleave-with", change)]
    submitted = submit(next(iter(arms.values())), plugins, directory, more)
    if as_json:
        echo_json(submitted)
        return 0
    echo(f"job {submitted.job} of cluster {submitted.cluster}")
    for word in ("attach", "cancel"):
        note(f"{word}: {flagperf_command('runs', word, submitted.job)}")
    return 0


def make_runs(session: Session, repeat: int, detached_in: str | None) -> list[RecordedRun]:
    """Make all runs of the session, and say what goes on."""
    done: list[RecordedRun] = []
    planned = repeat * len(session.plans)

    @contextlib.contextmanager
    def watch(plan: Plan, group: RunGroup | None) -> Iterator[OnProgress]:
        if group is not None:
            setting = f", setting {group.arm}" if group.arm else ""
            note(f"run {group.index} of {planned}{setting}, {group.id}")
        note_run(detached_in, plan.job.run_id)
        with live_progress(KINDS[plan.job.kind]) as on_progress:
            yield on_progress

    for plan in session.plans.values():
        announce(plan)
    try:
        for recorded in session.group(repeat, watch):
            done.append(recorded)
            if planned > 1:
                found = summarise(recorded)
                result = f", {found.result.in_line}" if found.result else ""
                note(f"{recorded.run.id}: {found.status}{result}")
    finally:
        if len(done) < planned and planned > 1:
            with_results = sum(recorded.run.has_results for recorded in done)
            kept = f"{len(done)} of {planned} runs are kept, {with_results} of them with results"
            note(f"{kept}; {planned - len(done)} were not started")
    return done


def announce(plan: Plan) -> None:
    """Say what is about to run."""
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
    values = job.config.values.get(KINDS[job.kind].values, {})
    if 0 < values.get("max_steps", 0) <= values.get("warmup_steps", 0):
        group = KINDS[job.kind].values
        note(f"note: {group}.max_steps is not above {group}.warmup_steps: no throughput will be measured")


def print_runs(done: Sequence[RecordedRun], directory: Path, published: bool | None, as_json: bool) -> None:
    """Print a single run; of a group, what the runs say together, and how two settings compare."""
    is_group = done[0].run.group is not None
    if not is_group:
        done = beside_imported(done, directory, published)
    if as_json:
        from flagperf.report.run_json import to_json

        echo_json_text(to_json(done))
    elif not is_group:
        show(run_report(done, published=published))
    else:
        by_name: dict[str, list[Run]] = {}
        for recorded in done:
            group = recorded.run.group
            assert group is not None
            by_name.setdefault(f"{group.id}/{group.arm}" if group.arm else group.id, []).append(recorded.run)
        show(repeats_report(by_name))
        print_comparison(done, directory)
    for recorded in done:
        ending, operators = recorded.run.ending, recorded.run.recorded
        if operators is not None and operators.problem is not None:
            echo_message(f"flagperf: --record-operators: {operators.problem}")
        if ending is not None and ending.status != "succeeded":
            what = recorded.run.id if is_group else "the run"
            echo_message(f"flagperf: {what} ended as {ending.status}: {ending.reason}")


def print_comparison(done: Sequence[RecordedRun], directory: Path) -> None:
    group = done[0].run.group
    if group is None or not group.arm:
        return
    from flagperf.compare.comparison import compare  # not at the top: few runs take turns with another setting
    from flagperf.compare.sides import named_sides

    echo("")
    try:
        show(comparison_report(compare(named_sides([group.id], None, directory, lambda: ()))))
    except BadInput as error:  # a setting has no run with results
        note(f"not compared: {error}")


def next_command(done: Sequence[RecordedRun], runs_dir: str | None) -> list[str]:
    """Return the command to try next: the page of a run, the comparison of a group. It finds them by id, in the same
    runs directory."""
    where = ["--runs-dir", runs_dir] if runs_dir else []
    simulated = ["--allow-simulated"] if done[0].run.simulated else []
    group = done[0].run.group
    if group is None:
        return ["report", done[0].run.id, *where, "--format", "md", *simulated]
    arms = {each.run.group.arm for each in done if each.run.group is not None and each.run.has_results}
    if len(arms) < (2 if group.arm else 1):  # there is nothing to compare
        return ["runs", "show", done[-1].run.id, *where]
    other = [] if group.arm else ["OTHER"]
    return ["compare", group.id, *other, *where, *simulated]


def worst_exit_code(done: Sequence[RecordedRun]) -> int:
    """Return that of the run that ended worst; 0 of a dry run."""
    found = {recorded.run.ending.status for recorded in done if recorded.run.ending is not None}
    return next((EXIT_CODES[status] for status in WORST_FIRST if status in found), 0)

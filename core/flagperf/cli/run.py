"""flagperf run"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flagperf.bundle.bundle import check_writable
from flagperf.bundle.imported import beside_imported, check_imported
from flagperf.bundle.listing import PREFIX, runs_directory
from flagperf.bundle.run_record import EXIT_CODES, RecordedRun, Run, RunGroup, Status
from flagperf.cli.completers import complete_assignment
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
from flagperf.cli.output import echo, echo_json_text, echo_message, show
from flagperf.cli.plan import print_plan
from flagperf.cli.progress import live_progress
from flagperf.cli.queue import finishing, note_run, submit
from flagperf.compare.comparison import compare
from flagperf.compare.sides import named_sides
from flagperf.errors import BadInput
from flagperf.fleet.reach import check_reach, reach_nodes
from flagperf.fleet.signals import raise_on_signals
from flagperf.kinds import KINDS
from flagperf.plan.plan import Plan, check_values, make_plan, renamed
from flagperf.plan.settings import layout_text
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.report.run_json import to_json
from flagperf.report.screens import comparison_report, repeats_report, run_report
from flagperf.run import execute, other_setting, refuse_equal, turns
from flagperf.spec.job import RunSpec
from flagperf.text import flagperf_command

# `run --repeat N`: complete runs one after the other, on the same nodes, that make a group.


Execute = Callable[[Plan, RunGroup], RecordedRun]

WORST_FIRST: tuple[Status, ...] = (
    "interrupted",
    "failed",
    "out_of_memory",
    "timed_out",
    "unsupported",
    "target_missed",
    "succeeded",
)


def run_repeatedly(arms: Mapping[str, Plan], count: int, execute: Execute) -> list[RecordedRun]:
    """So many runs of each arm, whose name is empty if there is one. The group ends early if it is interrupted, and if
    the first run of an arm has no results: its repeats would have none either. A run before that is kept."""
    order, group_id = turns(count, tuple(arms)), PREFIX + secrets.token_hex(4)
    done: list[RecordedRun] = []
    for index, arm in enumerate(order, start=1):
        group = RunGroup(group_id, index, len(order), arm)
        is_first = all(each.run.group is None or each.run.group.arm != arm for each in done)
        raise_on_signals()  # the end of the run before has switched them off
        note(f"run {index} of {len(order)}{f', setting {arm}' if arm else ''}, {group_id}")
        try:
            recorded = execute(renamed(arms[arm]), group)
        except KeyboardInterrupt:
            note(_kept(done, len(order)))
            raise
        done.append(recorded)
        note(_outcome(recorded))
        if _ends_group(recorded, is_first):
            note(_kept(done, len(order)))
            break
    return done


def _ends_group(recorded: RecordedRun, is_first: bool) -> bool:
    ending = recorded.run.ending
    is_interrupted = ending is not None and ending.status == "interrupted"
    return is_interrupted or (is_first and not recorded.run.has_results)


def _kept(done: Sequence[RecordedRun], planned: int) -> str:
    with_results = sum(recorded.run.has_results for recorded in done)
    left = planned - len(done)
    return f"{len(done)} of {planned} runs are kept, {with_results} of them with results; {left} were not started"


def _outcome(recorded: RecordedRun) -> str:
    run = recorded.run
    assert run.ending is not None
    speed = run.metric(KINDS[run.manifest.kind].timed)
    figure = f", {speed.name} {speed.value:.6g} {speed.unit}" if speed and speed.value is not None else ""
    return f"{run.id}: {run.ending.status}{figure}"


def print_group(done: Sequence[RecordedRun], runs_dir: Path, as_json: bool) -> None:
    """What the runs say together; of two settings, how they compare."""
    if as_json:
        echo_json_text(to_json(done))
    else:
        show(repeats_report(_by_name(done)))
        _print_comparison(done, runs_dir)
    for recorded in done:
        ending = recorded.run.ending
        if ending is not None and ending.status != "succeeded":
            echo_message(f"flagperf: {recorded.run.id} ended as {ending.status}: {ending.reason}")


def _by_name(done: Sequence[RecordedRun]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for recorded in done:
        group = recorded.run.group
        assert group is not None
        found.setdefault(f"{group.id}/{group.arm}" if group.arm else group.id, []).append(recorded.run)
    return found


def _print_comparison(done: Sequence[RecordedRun], runs_dir: Path) -> None:
    groups = [recorded.run.group for recorded in done if recorded.run.group is not None]
    if not any(group.arm for group in groups):
        return
    echo("")
    try:
        show(comparison_report(compare(named_sides([groups[0].id], None, runs_dir, lambda: ()))))
    except BadInput as error:  # a setting has no run with results
        note(f"not compared: {error}")


def next_command(done: Sequence[RecordedRun], runs_dir: str | None) -> str:
    group = done[0].run.group
    assert group is not None
    where = ["--runs-dir", runs_dir] if runs_dir else []
    arms = {each.run.group.arm for each in done if each.run.group is not None and each.run.has_results}
    if len(arms) < (2 if group.arm else 1):  # there is nothing to compare
        return flagperf_command("runs", "show", done[-1].run.id, *where)
    simulated = ["--allow-simulated"] if done[0].run.simulated else []
    other = [] if group.arm else ["OTHER"]
    return flagperf_command("compare", group.id, *other, *where, *simulated)


def worst_exit_code(done: Sequence[RecordedRun]) -> int:
    found = {recorded.run.ending.status for recorded in done if recorded.run.ending is not None}
    return EXIT_CODES[next(status for status in WORST_FIRST if status in found)]


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

"""`run --repeat N`: complete runs one after the other, on the same nodes, that make a group."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flagperf.cli.options import note
from flagperf.cli.output import echo, echo_json_text, echo_message
from flagperf.cli.terminal import show
from flagperf.commands import flagperf_command
from flagperf.compare import compare, named_sides
from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.launch import raise_on_signals
from flagperf.plan import Plan, renamed, turns
from flagperf.report import comparison_report, repeats_report, to_json
from flagperf.store.groups import PREFIX
from flagperf.store.run import EXIT_CODES, RecordedRun, Run, RunGroup, Status

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

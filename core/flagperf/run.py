"""A run from start to end: `open_session`, `Session.run`, `end_run`. What each of them calls is a package.

    RunSpec --plan--> Job --launch--> Worker(Case) --writes--> Events + Samples --measure--> Metrics --save--> Run

From `measure` on everything depends only on files, so it can be repeated later and on another machine. Then come runs
whose command is gone (`end_abandoned`) and the second setting of `--interleave-with`.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import msgspec

from flagperf import version
from flagperf.api import LaunchCommand
from flagperf.bundle.bundle import (
    check_writable,
    environment_fingerprint,
    launched_commands,
    new_bundle,
    read_bundle,
    read_record,
    remove_unstarted,
    seal,
    unreadable_files,
    write_manifest,
    write_run,
    writing,
)
from flagperf.bundle.listing import GROUP_PREFIX, runs_directory
from flagperf.bundle.liveness import alone, parent_of
from flagperf.bundle.operator_file import collect_operators
from flagperf.bundle.paths import (
    ALL_RANK_EVENTS,
    ENVIRONMENT_FILE,
    MANIFEST_FILE,
    OPERATORS_FILE,
    PARENT_EVENTS,
    RUN_FILE,
)
from flagperf.bundle.run_record import STORE_SCHEMA, Ending, RecordedRun, Run, RunGroup, Status, ended, gated
from flagperf.errors import BadInput, BundleFailed, BundleInUse
from flagperf.event_files import MAX_EVENT_BYTES, EventFile, EventWriter, read_events, this_clock
from flagperf.events import BundleSealed, RunEnded, RunStarted
from flagperf.files import read_regular, sha256_of
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.reach import reach_nodes, with_meeting_place
from flagperf.fleet.run_job import run_job
from flagperf.fleet.signals import raise_on_signals, signals_restored
from flagperf.fleet.supervision import OnProgress
from flagperf.messages import Message, message
from flagperf.metrics.entry import Metric, Record
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics, metric_versions
from flagperf.metrics.rows import MeasuredRow
from flagperf.plan.plan import Plan, make_plan, renamed
from flagperf.plausibility.doubts import read_marked
from flagperf.plugins.installed import load_plugins
from flagperf.report.sections.result_tables import check_layout
from flagperf.spec.job import RunSpec
from flagperf.spec.protocol import Progress
from flagperf.spec.values import parse_assignment
from flagperf.text import flagperf_command

OPTION = "--interleave-with"

Watch = Callable[[Plan, RunGroup | None], AbstractContextManager[OnProgress]]
"""Entered around each run of a group, before it begins: follows its progress."""


def ignore_progress(_node_index: int, _progress: Progress) -> None:
    """Follow a run without showing anything."""


def run_case(case: str, *, runs_dir: str | None = None, **request: object) -> RecordedRun:
    """Run a case and return the recorded run. Takes the fields of RunSpec as keyword arguments.

    Raises BadInput or Unsupported before anything is started. Once started, a run is returned even if it fails; its
    ending is in `.run.ending`.
    """
    try:
        spec = msgspec.convert({"case": case, **request}, RunSpec)
    except msgspec.ValidationError as error:
        raise BadInput(f"run_case: {error}; it takes {', '.join(RunSpec.__struct_fields__)} and runs_dir") from None
    with signals_restored(), open_session({"": spec}, runs_directory(runs_dir)) as session:
        return session.run(session.plans[""])


@contextlib.contextmanager
def open_session(arms: Mapping[str, RunSpec], runs_dir: Path, *, needs_worker: bool = True) -> Iterator[Session]:
    """Reach the nodes once and plan every setting on them. A single setting has the name "".

    Raises BadInput or Unsupported before anything is started. Without `needs_worker` the plans are only looked at:
    the case's libraries and data may be missing.
    """
    plugins = load_plugins()
    check_writable(runs_dir)
    with reach_nodes(next(iter(arms.values())), plugins) as fleet:
        plans = {arm: make_plan(spec, plugins, fleet, needs_worker=needs_worker) for arm, spec in arms.items()}
        for plan in plans.values():
            check_layout(plan.manifest)
        values = [plan.job.config.values for plan in plans.values()]
        if len(values) > 1 and values[0] == values[1]:
            raise BadInput(f"{OPTION} changes no value: both settings are the same")
        yield Session(runs_dir, fleet, plans)


class Session(msgspec.Struct, frozen=True):
    """The nodes of a command, and the plan of each setting that runs on them."""

    runs_dir: Path
    fleet: Fleet
    plans: Mapping[str, Plan]

    def run(self, plan: Plan, group: RunGroup | None = None, on_progress: OnProgress = ignore_progress) -> RecordedRun:
        """Make one run and return what its bundle says. However it ends, it is returned once it has begun."""
        job = with_meeting_place(plan.job, self.fleet, plan.spec.interface)
        run = Run(
            schema=STORE_SCHEMA,
            id=job.run_id,
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            flagperf_version=version(),
            spec=plan.spec,
            job=job,
            manifest=plan.manifest,
            metric_versions=metric_versions(plan.manifest),
            simulated=job.simulated,
            group=group,
        )
        try:
            with new_bundle(self.runs_dir, run, plan.nodes) as bundle:
                measured = functools.cache(functools.partial(measure, bundle, run))
                interface = plan.spec.interface or ""
                ending = run_job(job, self.fleet, bundle, on_progress, interface, lambda: measured().damage)
                end_run(bundle, run, ending, measured())
        except KeyboardInterrupt:  # before the run began; from then on it ends as interrupted
            remove_unstarted(self.runs_dir / run.id)
            raise
        try:
            return read_marked([bundle])[0]
        except BadInput as error:  # a part that nothing could be written in the place of
            raise BundleFailed(f"the run ended as {ending.status}, and its bundle cannot be read: {error}") from None

    def group(self, count: int, watch: Watch) -> Iterator[RecordedRun]:
        """Make `count` runs of each setting, in turns, and yield each when it has ended. More than one run have a
        RunGroup.

        The group ends early if a run is interrupted, and if the first run of a setting has no results: its repeats
        would have none either.
        """
        order, group_id, with_results = turns(count, tuple(self.plans)), GROUP_PREFIX + secrets.token_hex(4), set[str]()
        for index, arm in enumerate(order, start=1):
            plan, group = self.plans[arm], None
            if len(order) > 1:
                plan, group = renamed(plan), RunGroup(group_id, index, len(order), arm)
                raise_on_signals()  # the end of the run before has switched them off
            with watch(plan, group) as on_progress:
                recorded = self.run(plan, group, on_progress)
            yield recorded
            ending = recorded.run.ending
            if recorded.run.has_results:
                with_results.add(arm)
            if arm not in with_results or (ending is not None and ending.status == "interrupted"):
                return


def end_run(bundle: Path, run: Run, ending: Ending, measured: Measured) -> None:
    """Complete run.json and seal the bundle."""
    found = msgspec.structs.replace(run, metrics=measured.metrics, rows=measured.rows, commands=measured.commands)
    recorded = collect_operators(bundle, found)
    write_run(bundle, msgspec.structs.replace(found, ending=gated(ending, found), recorded=recorded))
    seal(bundle)


class Measured(msgspec.Struct, frozen=True):
    """The part of run.json that is added when a run has ended."""

    metrics: tuple[Metric, ...]
    rows: tuple[MeasuredRow, ...]
    commands: tuple[LaunchCommand, ...]
    damage: Message | None = None
    """Why a file cannot be read: it was damaged during the run. Nothing is then measured, and the run has failed."""


def measure(bundle: Path, run: Run) -> Measured:
    """Compute everything from the raw files, reading each of them once. Never raises for a file that is damaged."""

    def computed(record: Record) -> Measured:
        observed = Observed(run.job, run.manifest, record)
        return Measured(compute_metrics(observed), observed.rows, launched_commands(record.parent))

    try:
        record = read_record(bundle)
        for problem in unreadable_files(bundle):
            raise BadInput(problem)
        environment = environment_fingerprint(bundle)
        for event in record.parent.events[:1]:
            if isinstance(event, RunStarted) and event.environment not in ("", environment):
                raise BadInput(f"{ENVIRONMENT_FILE} was changed")
        return computed(record)
    except BadInput as error:
        nothing = computed(Record(EventFile(()), (), ()))
        return msgspec.structs.replace(nothing, damage=message("ending.record_unreadable", why=str(error)))


# Runs whose command is gone: killed, or lost with its machine. What the command would have written at its end is
# written in its place, from the files that it left.


def has_ended(bundle: Path) -> bool:
    """Tell whether a bundle is sealed. The folder is listed: NFS may remember a missing file for a minute."""
    return MANIFEST_FILE.name in os.listdir(bundle)  # noqa: PTH208


def check_gone(bundle: Path) -> None:
    """Raise BadInput unless it is proved that the run's command is gone."""
    parent = parent_of(bundle)
    if parent.state == "killed":
        return
    if parent.state == "running":
        raise BundleInUse(f"{bundle.name} is in use: its command on {parent.host or 'this machine'} is still at work")
    anyway = flagperf_command("runs", "end", str(bundle), "--gone")
    where = f"its command began on {parent.host}" if parent.host else "its command may be about to begin"
    unseen = "whether it lives cannot be seen from here"
    raise BadInput(f"{bundle.name}: {where}, and {unseen}; where you know that it is gone, `{anyway}` ends it")


def end_abandoned(bundle: Path, why: str = "", *, said_gone: bool = False) -> RecordedRun | None:
    """End a run whose command is gone, and return it. `why` is added to its reason. A run that has ended stays as it
    is. A folder in which no run had begun is removed; the answer is then None.

    Raises BundleInUse if the bundle's lock is held, unless a person `said_gone`, and BadInput if the bundle cannot be
    read.
    """
    for problem in unreadable_files(bundle):
        raise BadInput(f"{bundle.name} cannot be ended: {problem}")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(bundle))
        except BundleInUse:
            if not said_gone:
                raise
        return read_bundle(bundle) if has_ended(bundle) or _end(bundle, why) else None


def _end(bundle: Path, why: str) -> bool:
    """Go on from wherever the command was killed. Return False if there was no run to end."""
    run, parent = read_bundle(bundle).run, bundle / PARENT_EVENTS
    if run.flagperf_version != version():  # other versions may have other metrics than the run began with
        raise BadInput(f"{bundle.name} was begun by flagperf {run.flagperf_version}: end it with that version")
    if parent.exists():  # cut off the line that was being written: others follow it
        content = read_regular(parent, MAX_EVENT_BYTES)
        with writing(bundle):
            os.truncate(parent, content.rfind(b"\n") + 1)
    events = read_events(parent).events if parent.exists() else ()
    if not events and not any(bundle.glob(str(ALL_RANK_EVENTS))):
        remove_unstarted(bundle)
        return False
    if not events or not isinstance(events[0], RunStarted):
        raise BadInput(f"{bundle.name} cannot be ended: {PARENT_EVENTS} lacks its first event")
    with writing(bundle):
        for name in (RUN_FILE, OPERATORS_FILE, MANIFEST_FILE):  # not renamed yet (`write_atomically`)
            for path in bundle.glob(f".{name}.*"):
                path.unlink()
    last = events[-1]
    if isinstance(last, BundleSealed):
        with writing(bundle):
            write_manifest(bundle, {**last.files, PARENT_EVENTS.as_posix(): sha256_of(parent)})
    elif run.ending is not None:
        seal(bundle)
    else:
        measured = measure(bundle, run)
        own = [event for event in events if isinstance(event, RunEnded)]
        if own:  # the command was killed while it measured
            ending = Ending(cast("Status", own[0].status), own[0].reason, own[0].message)
        else:
            gone = message("ending.command_gone", pid=events[0].clock.pid, host=events[0].clock.host)
            ending = ended("failed", message("ending.because", what=gone, why=why) if why else gone)
            event = RunEnded(time.monotonic_ns(), ending.status, ending.reason, ending.message, this_clock())
            with writing(bundle), EventWriter(parent) as writer:
                writer.write(event)
        end_run(bundle, run, ending, measured)
    return True


# Two settings that take turns on the same nodes: A is what was asked for, B the same with other values.


def other_setting(spec: RunSpec, changes: Sequence[str]) -> RunSpec:
    """Return the request with other values. `precision` is a key like all others."""
    keys = [parse_assignment(text, OPTION)[0] for text in changes]
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(f"{OPTION} gives {key} more than once")
    kept = [text for text in spec.set if parse_assignment(text)[0] not in keys]
    precision = None if "precision" in keys else spec.precision
    return msgspec.structs.replace(spec, set=(*kept, *changes), precision=precision)


def turns(count: int, arms: Sequence[str]) -> list[str]:
    """Return the order of `count` runs of each: A B, B A, A B, ... What drifts slowly then affects both alike."""
    return [arm for turn in range(count) for arm in (arms if turn % 2 == 0 else reversed(arms))]

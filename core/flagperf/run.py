"""A run from start to end. Each stage below is a package.

    RunSpec --plan--> Job --launch--> Worker(Case) --writes--> Events + Samples --measure--> Metrics --save--> Run

Everything from `measure` on depends only on files, so it can be repeated later and on another machine.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import time
from collections.abc import Sequence
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
    sha256_of,
    unreadable_files,
    write_manifest,
    write_run,
    writing,
)
from flagperf.bundle.listing import runs_directory
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
from flagperf.events import BundleSealed, Event, RunEnded, RunStarted
from flagperf.files import read_regular
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.reach import reach_nodes, with_meeting_place
from flagperf.fleet.run_job import run_job
from flagperf.fleet.signals import signals_restored
from flagperf.fleet.supervision import OnProgress
from flagperf.messages import Message, message
from flagperf.metrics.entry import Metric, Record
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics, metric_versions
from flagperf.metrics.rows import MeasuredRow
from flagperf.plan.plan import Plan, make_plan
from flagperf.plausibility.doubts import read_marked
from flagperf.plugins.installed import load_plugins
from flagperf.report.sections.result_tables import check_layout
from flagperf.spec.job import Job, RunSpec
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import parse_assignment
from flagperf.text import flagperf_command

# Measures a run from the raw files of its bundle, reading each of them once.


class Measured(msgspec.Struct, frozen=True):
    """What run.json gets when a run has ended."""

    metrics: tuple[Metric, ...]
    rows: tuple[MeasuredRow, ...]
    commands: tuple[LaunchCommand, ...]
    damage: Message | None = None
    """Why a file cannot be read: it was damaged during the run. Nothing is then measured, and the run has failed."""


def measure(bundle: Path, job: Job, manifest: Manifest) -> Measured:
    """All that the parent computes when the agents have ended. Never raises for a file that is damaged."""
    try:
        record = read_record(bundle)
        _check_others(bundle, record)
        return _measured(Observed(job, manifest, record))
    except BadInput as error:
        nothing = _measured(Observed(job, manifest, Record(EventFile(()), (), ())))
        return msgspec.structs.replace(nothing, damage=message("ending.record_unreadable", why=str(error)))


def _check_others(bundle: Path, record: Record) -> None:
    """What nothing is measured from, and the bundle cannot be read without."""
    for problem in unreadable_files(bundle):
        raise BadInput(problem)
    found = environment_fingerprint(bundle)
    for event in record.parent.events[:1]:
        if isinstance(event, RunStarted) and event.environment not in ("", found):
            raise BadInput(f"{ENVIRONMENT_FILE} was changed")


def _measured(run: Observed) -> Measured:
    return Measured(compute_metrics(run), run.rows, launched_commands(run.record.parent))


def run_case(case: str, *, runs_dir: str | None = None, **request: object) -> RecordedRun:
    """Run a case and return the recorded run. Takes the fields of RunSpec as keyword arguments.

    Raises BadInput or Unsupported before anything is started. Once started, a run is returned even if it fails; its
    ending is in `.run.ending`.
    """
    try:
        spec = msgspec.convert({"case": case, **request}, RunSpec)
    except msgspec.ValidationError as error:
        raise BadInput(f"run_case: {error}; it takes {', '.join(RunSpec.__struct_fields__)} and runs_dir") from None
    directory = runs_directory(runs_dir)
    check_writable(directory)
    with signals_restored():
        plugins = load_plugins()
        with reach_nodes(spec, plugins) as fleet:
            return execute(make_plan(spec, plugins, fleet), fleet, directory)


def execute(
    plan: Plan,
    fleet: Fleet,
    runs_dir: Path,
    on_progress: OnProgress = lambda _node, _progress: None,
    group: RunGroup | None = None,
) -> RecordedRun:
    job = with_meeting_place(plan.job, fleet, plan.spec.interface)
    run = Run(
        schema=STORE_SCHEMA,
        id=job.run_id,
        created=_now(),
        flagperf_version=version(),
        spec=plan.spec,
        job=job,
        manifest=plan.manifest,
        metric_versions=metric_versions(plan.manifest),
        simulated=job.simulated,
        group=group,
    )
    check_layout(plan.manifest)
    try:
        with new_bundle(runs_dir, run, plan.nodes) as bundle:
            measured = functools.cache(functools.partial(measure, bundle, job, plan.manifest))
            interface = plan.spec.interface or ""
            ending = run_job(job, fleet, bundle, on_progress, interface, lambda: measured().damage)
            end_run(bundle, run, ending, measured())
    except KeyboardInterrupt:  # before the run began; from then on it ends as interrupted
        remove_unstarted(runs_dir / run.id)
        raise
    try:
        return read_marked([bundle])[0]
    except BadInput as error:  # a part that nothing could be written in the place of
        raise BundleFailed(f"the run ended as {ending.status}, and its bundle cannot be read: {error}") from None


def end_run(bundle: Path, run: Run, ending: Ending, measured: Measured) -> None:
    """Complete run.json and seal the bundle."""
    found = msgspec.structs.replace(run, metrics=measured.metrics, rows=measured.rows, commands=measured.commands)
    recorded = collect_operators(bundle, found)
    write_run(bundle, msgspec.structs.replace(found, ending=gated(ending, found), recorded=recorded))
    seal(bundle)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


# Ends a run whose command is gone: killed, or lost with its machine. What the command would have written at its end
# is written in its place, from the files that it left.


def has_ended(bundle: Path) -> bool:
    """The folder is listed: what NFS remembers of a file that was not there may be a minute old."""
    return MANIFEST_FILE.name in os.listdir(bundle)  # noqa: PTH208


def check_gone(bundle: Path) -> None:
    """Raises BadInput unless it is proved that the run's command is gone."""
    parent = parent_of(bundle)
    if parent.state == "gone":
        return
    if parent.state == "alive":
        raise BundleInUse(f"{bundle.name} is in use: its command on {parent.host or 'this machine'} is still at work")
    anyway = flagperf_command("runs", "end", str(bundle), "--gone")
    where = f"its command began on {parent.host}" if parent.host else "its command may be about to begin"
    unseen = "whether it lives cannot be seen from here"
    raise BadInput(f"{bundle.name}: {where}, and {unseen}; where you know that it is gone, `{anyway}` ends it")


def end_abandoned(bundle: Path, why: str = "", *, said_gone: bool = False) -> RecordedRun | None:
    """The run with its ending, which says `why` its command is gone where that is known; None, and the folder is
    removed, where no run had begun. What has ended is left as it is.

    The caller knows that the command is gone. Raises BundleInUse where the bundle's lock says otherwise, unless a
    person `said_gone`; BadInput where the bundle cannot be read.
    """
    for problem in unreadable_files(bundle):
        raise BadInput(f"{bundle.name} cannot be ended: {problem}")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(bundle))
        except BundleInUse:
            if not said_gone:
                raise
        return read_bundle(bundle) if has_ended(bundle) else _ended(bundle, why)


def _ended(bundle: Path, why: str) -> RecordedRun | None:
    """Goes on from wherever the command was killed."""
    run, events = _run_of_this_version(bundle), _cut_events(bundle)
    if not events and not any(bundle.glob(str(ALL_RANK_EVENTS))):
        remove_unstarted(bundle)
        return None
    if not events or not isinstance(events[0], RunStarted):
        raise BadInput(f"{bundle.name} cannot be ended: {PARENT_EVENTS} lacks its first event")
    _remove_unfinished(bundle)
    last = events[-1]
    if isinstance(last, BundleSealed):
        with writing(bundle):
            write_manifest(bundle, {**last.files, PARENT_EVENTS.as_posix(): sha256_of(bundle / PARENT_EVENTS)})
    elif run.ending is not None:
        seal(bundle)
    else:
        measured = measure(bundle, run.job, run.manifest)
        ending = _own_ending(events) or _write_ending(bundle, _reason(events[0], why))
        end_run(bundle, run, ending, measured)
    return read_bundle(bundle)


def _run_of_this_version(bundle: Path) -> Run:
    """Another one may have other metrics than the run began with."""
    run = read_bundle(bundle).run
    if run.flagperf_version != version():
        raise BadInput(f"{bundle.name} was begun by flagperf {run.flagperf_version}: end it with that version")
    return run


def _whole_events(bundle: Path) -> Sequence[Event]:
    path = bundle / PARENT_EVENTS
    return read_events(path).events if path.exists() else ()


def _cut_events(bundle: Path) -> Sequence[Event]:
    """Without the line that the command was writing when it was killed: another one is written behind it."""
    path = bundle / PARENT_EVENTS
    if path.exists():
        content = read_regular(path, MAX_EVENT_BYTES)
        with writing(bundle):
            os.truncate(path, content.rfind(b"\n") + 1)
    return _whole_events(bundle)


def _remove_unfinished(bundle: Path) -> None:
    """Files that were not renamed yet (`write_atomically`)."""
    with writing(bundle):
        for name in (RUN_FILE, OPERATORS_FILE, MANIFEST_FILE):
            for path in bundle.glob(f".{name}.*"):
                path.unlink()


def _own_ending(events: Sequence[Event]) -> Ending | None:
    """The command's own, where that was killed while it measured."""
    found = [event for event in events if isinstance(event, RunEnded)]
    return Ending(cast("Status", found[0].status), found[0].reason, found[0].message) if found else None


def _reason(started: RunStarted, why: str) -> Message:
    gone = message("ending.command_gone", pid=started.clock.pid, host=started.clock.host)
    return message("ending.because", what=gone, why=why) if why else gone


def _write_ending(bundle: Path, why: Message) -> Ending:
    ending = ended("failed", why)
    with writing(bundle), EventWriter(bundle / PARENT_EVENTS) as writer:
        writer.write(RunEnded(time.monotonic_ns(), ending.status, ending.reason, ending.message, this_clock()))
    return ending


# Two settings that take turns on the same nodes: A is what was asked for, B the same with other values.


OPTION = "--interleave-with"


def other_setting(spec: RunSpec, changes: Sequence[str]) -> RunSpec:
    """`precision` is a key like all others."""
    keys = [parse_assignment(text, OPTION)[0] for text in changes]
    for key in keys:
        if keys.count(key) > 1:
            raise BadInput(f"{OPTION} gives {key} more than once")
    kept = [text for text in spec.set if parse_assignment(text)[0] not in keys]
    precision = None if "precision" in keys else spec.precision
    return msgspec.structs.replace(spec, set=(*kept, *changes), precision=precision)


def refuse_equal(arms: Sequence[Plan]) -> None:
    values = [plan.job.config.values for plan in arms]
    if len(values) > 1 and values[0] == values[1]:
        raise BadInput(f"{OPTION} changes no value: both settings are the same")


def turns(count: int, arms: Sequence[str]) -> list[str]:
    """So many runs of each: A B, B A, A B, ... What drifts slowly then affects both alike."""
    return [arm for turn in range(count) for arm in (arms if turn % 2 == 0 else reversed(arms))]

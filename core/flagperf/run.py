"""A run from start to end. Each stage below is a package.

    RunSpec --plan--> Job --launch--> Worker(Case) --writes--> Events + Samples --measure--> Metrics --save--> Run

Everything from `read_record` on depends only on files, so it can be repeated later and on another machine.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.events import EventFile
from flagperf.fleet import Fleet
from flagperf.launch import OnProgress, run_job, signals_restored
from flagperf.metrics import Record, compute_metrics, measured_rows, metric_versions
from flagperf.plan import Plan, make_plan, reach_nodes, with_meeting_place
from flagperf.plugins import core_version, load_plugins
from flagperf.report import check_layout
from flagperf.spec import RunSpec
from flagperf.store.bundle import (
    check_writable,
    create_bundle,
    read_bundle,
    read_record,
    remove_unstarted,
    seal,
    write_run,
)
from flagperf.store.commands import launched_commands
from flagperf.store.listing import runs_directory
from flagperf.store.run import STORE_SCHEMA, RecordedRun, Run, gated


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
    plan: Plan, fleet: Fleet, runs_dir: Path, on_progress: OnProgress = lambda _node, _progress: None
) -> RecordedRun:
    job = with_meeting_place(plan.job, fleet, plan.spec.interface)
    run = Run(
        schema=STORE_SCHEMA,
        id=job.run_id,
        created=_now(),
        flagperf_version=core_version(),
        spec=plan.spec,
        job=job,
        manifest=plan.manifest,
        metric_versions=metric_versions(plan.manifest),
        simulated=job.simulated,
    )
    check_layout(plan.manifest)
    try:
        bundle = create_bundle(runs_dir, run, plan.nodes)
        ending = run_job(job, fleet, bundle, on_progress, plan.spec.interface or "")
    except KeyboardInterrupt:  # before the run began; from then on it ends as interrupted
        remove_unstarted(runs_dir / run.id)
        raise
    record = _readable_record(bundle)
    metrics = compute_metrics(job, plan.manifest, record)
    measured = msgspec.structs.replace(
        run, metrics=metrics, rows=measured_rows(record), commands=launched_commands(record)
    )
    write_run(bundle, msgspec.structs.replace(measured, ending=gated(ending, measured)))
    seal(bundle)
    return read_bundle(bundle)


def _readable_record(bundle: Path) -> Record:
    """Nothing where a file was damaged during the run: the ending says so."""
    try:
        return read_record(bundle)
    except BadInput:
        return Record(parent=EventFile(()), ranks=(), samples=())


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

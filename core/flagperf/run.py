"""A run from start to end. Each stage below is a package.

    RunSpec --plan--> Job --launch--> Worker(Case) --writes--> Events + Samples --measure--> Metrics --save--> Run

Everything from `measure` on depends only on files, so it can be repeated later and on another machine.
"""

from __future__ import annotations

import datetime
import functools
from pathlib import Path

import msgspec

from flagperf import version
from flagperf.errors import BadInput, BundleFailed
from flagperf.fleet import Fleet
from flagperf.launch import OnProgress, run_job, signals_restored
from flagperf.metrics import metric_versions
from flagperf.plan import Plan, make_plan, reach_nodes, with_meeting_place
from flagperf.plausibility.doubts import read_marked
from flagperf.plugins.installed import load_plugins
from flagperf.report import check_layout
from flagperf.spec import RunSpec
from flagperf.store.bundle import (
    check_writable,
    new_bundle,
    remove_unstarted,
    seal,
    write_run,
)
from flagperf.store.listing import runs_directory
from flagperf.store.measure import Measured, measure
from flagperf.store.recording import collect_operators
from flagperf.store.run import STORE_SCHEMA, Ending, RecordedRun, Run, RunGroup, gated


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

"""make_plan: everything that a run will do, decided before anything starts."""

from __future__ import annotations

import datetime
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flagperf.api import DataFile, Device, LaunchCommand, Peak
from flagperf.errors import BadInput
from flagperf.escapes import is_utf8
from flagperf.files import is_folder
from flagperf.plan.estimate import MemoryEstimate, estimate_memory
from flagperf.plan.nodes import check_nodes
from flagperf.plan.placement import Placement, find_placement
from flagperf.plan.settings import CaseSettings, make_settings, missing_data, refuse_unsupported, resolve_values
from flagperf.plan.tuning import tuning_layer
from flagperf.plan.userfile import case_file
from flagperf.plugins import Case, Plugins
from flagperf.spec import (
    WORKER_MODULE,
    CheckAnswer,
    CheckRequest,
    Job,
    Layer,
    Manifest,
    NodeFacts,
    Resolved,
    RunSpec,
    check_counts,
)

YEAR_SECONDS = 365 * 24 * 3600.0


class Plan(msgspec.Struct, frozen=True):
    spec: RunSpec
    job: Job
    manifest: Manifest
    nodes: tuple[NodeFacts, ...]
    commands: tuple[LaunchCommand, ...]
    """One per node."""
    vendor_note: str
    """Which vendor, and why where it was not asked for."""
    env_script: str = ""
    """Of the vendor, on the first node."""
    memory: MemoryEstimate | None = None
    """Of the fullest rank, where the case estimates it."""
    data_problem: str = ""
    """Why the case cannot use the values or --data-dir. Always empty in a plan that is run."""


def make_plan(spec: RunSpec, plugins: Plugins, *, needs_worker: bool = True) -> Plan:
    """`needs_worker` false: plan also where the case's libraries are not installed or its data cannot be used."""
    _check_shape(spec)
    case = plugins.case(spec.case)
    user_file = case_file(spec, plugins)
    resolve_values(spec, case.manifest, user_file, tuning=None)  # reports a wrong key before any node is asked
    if needs_worker:
        _raise_problem(missing_data(spec, case.manifest))
    placement = find_placement(spec, plugins, case.manifest.requires, user_file, needs_worker)
    tuning = _tuning(spec, case.manifest, placement)
    peaks = placement.backend.peaks()
    settings = make_settings(spec, case.manifest, user_file, placement.backend, tuning)
    refuse_unsupported(settings.precision, placement.backend, placement.device.model)
    data = _check_data(spec, case.manifest, settings.config, placement)
    if needs_worker:
        _raise_problem(data.problem)
    job = _job(spec, case, placement, settings, peaks, data.files)
    launcher = plugins.launcher(placement.backend.vendor)
    commands = tuple(launcher.command(job.share(node), sys.executable, WORKER_MODULE) for node in job.nodes)
    memory = estimate_memory(case, settings.config, placement.device.memory_bytes, "what it reports")
    return Plan(
        spec=spec,
        job=job,
        manifest=case.manifest,
        nodes=placement.facts,
        commands=commands,
        vendor_note=placement.choice.note,
        env_script=placement.choice.facts.env_script,
        memory=memory,
        data_problem=data.problem,
    )


def _raise_problem(problem: str) -> None:
    if problem:
        raise BadInput(problem)


def _check_shape(spec: RunSpec) -> None:
    check_counts(spec)
    if spec.timeout_seconds is not None and not 0 < spec.timeout_seconds <= YEAR_SECONDS:
        raise BadInput(f"--timeout must be above 0 and at most a year; got {spec.timeout_seconds:g} s")
    if not 0 < spec.sample_seconds <= YEAR_SECONDS:
        raise BadInput(f"--sample-seconds must be above 0 and at most a year; got {spec.sample_seconds:g} s")
    if spec.data_dir is not None and spec.cluster == "local" and not is_folder(Path(spec.data_dir)):
        raise BadInput(f"--data-dir {spec.data_dir} is not a folder")
    if not is_utf8(_absolute(spec.data_dir) or ""):
        raise BadInput(f"--data-dir {spec.data_dir}: the name of a folder above it is not UTF-8; rename that one")


def _tuning(spec: RunSpec, manifest: Manifest, placement: Placement) -> Layer | None:
    if placement.device.slice:  # published values are those of whole cards
        return None
    return tuning_layer(placement.backend, placement.device.model, spec, manifest)


def _check_data(spec: RunSpec, manifest: Manifest, config: Resolved, placement: Placement) -> CheckAnswer:
    missing = missing_data(spec, manifest)
    if missing or manifest.check_files is None:
        return CheckAnswer(problem=missing)
    request = CheckRequest(manifest.check_files, _absolute(spec.data_dir), config.values)
    return check_nodes(placement.cluster, placement.nodes, request)


def _job(
    spec: RunSpec,
    case: Case,
    placement: Placement,
    settings: CaseSettings,
    peaks: Sequence[Peak],
    files: tuple[DataFile, ...],
) -> Job:
    return Job(
        run_id=_run_id(spec, placement.backend.vendor),
        case=case.manifest.name,
        case_version=case.manifest.version,
        kind=case.manifest.kind,
        case_target=case.reference.target,
        profile=settings.profile,
        precision=settings.precision,
        vendor=placement.backend.vendor,
        vendor_title=placement.backend.title or {"en": placement.backend.vendor},
        adapter=placement.choice.facts.adapter,
        config=settings.config,
        nodes=placement.parts,
        master_address=placement.parts[0].address,
        master_port=placement.facts[0].free_port,
        host_workers=placement.host_workers,
        memory_scope=placement.backend.memory_scope,
        has_allocator=placement.backend.has_allocator,
        peaks=_peaks(peaks, placement.device),
        accept_low_peaks=spec.accept_low_peaks,
        oversubscribed=placement.oversubscribed,
        simulated=placement.choice.facts.simulated,
        case_package=case.plugin.adapter,
        sample_seconds=spec.sample_seconds,
        timeout_seconds=spec.timeout_seconds,
        data_dir=_absolute(spec.data_dir),
        data_files=files,
    )


def _peaks(peaks: Sequence[Peak], device: Device) -> tuple[Peak, ...]:
    """Of the whole card: a slice has none."""
    return () if device.slice else tuple(peak for peak in peaks if peak.model == device.model)


def _absolute(data_dir: str | None) -> str | None:
    return str(Path(data_dir).absolute()) if data_dir else None


def _run_id(spec: RunSpec, vendor: str) -> str:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{now}-{spec.case}-{vendor}-{spec.nodes}x{spec.devices}-{secrets.token_hex(3)}"

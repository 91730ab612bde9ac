"""make_plan: everything that a run will do, decided before anything starts."""

from __future__ import annotations

import contextlib
import datetime
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from flagperf.api import DataFile, Device, LaunchCommand, Peak
from flagperf.errors import BadInput, FlagPerfError, NodeFailed, unknown_name
from flagperf.plan.estimate import MemoryEstimate, estimate_memory
from flagperf.plan.nodes import check_nodes
from flagperf.plan.settings import Settings, choose_profile, make_settings, refuse_unsupported, resolve_values
from flagperf.plan.site import Site, find_site
from flagperf.plan.tuning import find_tuning
from flagperf.plan.userfile import UserFile, read_user_file
from flagperf.plugins import Case, Plugins
from flagperf.spec import TUNING_LAYER, WORKER_MODULE, CheckRequest, Job, Layer, Manifest, NodeFacts, Resolved, RunSpec

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


def make_plan(spec: RunSpec, plugins: Plugins, *, needs_worker: bool = True) -> Plan:
    """`needs_worker` false: plan also where the case's libraries are not installed."""
    _check_shape(spec)
    case = plugins.case(spec.case)
    user_file = _user_file(spec, plugins)
    resolve_values(spec, case.manifest, user_file, tuning=None)  # a wrong key is said before any node is asked
    site = find_site(spec, plugins, case.manifest.requires, user_file, needs_worker)
    with adapter_code(site.choice.facts.adapter):
        tuning = _tuning(spec, case.manifest, site)
        peaks = site.backend.peaks()
    settings = make_settings(spec, case.manifest, user_file, site.backend, tuning)
    with adapter_code(site.choice.facts.adapter):
        refuse_unsupported(settings.precision, site.backend, site.device.model)
    job = _job(spec, case, site, settings, peaks, _checked_files(spec, case.manifest, settings.config, site))
    launcher = plugins.launcher(site.backend.vendor)
    with adapter_code(job.adapter):
        commands = tuple(launcher.command(job.share(node), sys.executable, WORKER_MODULE) for node in job.nodes)
    memory = estimate_memory(case.manifest, settings.config, site.device.memory_bytes, "what it reports")
    return Plan(spec, job, case.manifest, site.facts, commands, site.choice.note, site.choice.facts.env_script, memory)


@contextlib.contextmanager
def adapter_code(adapter: str) -> Iterator[None]:
    """Whatever an adapter's code raises here is that adapter's failure, said with its name."""
    try:
        yield
    except FlagPerfError:
        raise
    except Exception as error:
        raise NodeFailed(f"adapter {adapter} failed: {type(error).__name__}: {error}") from error


def _check_shape(spec: RunSpec) -> None:
    for name, value in (("--nodes", spec.nodes), ("--devices", spec.devices)):
        if value < 1:
            raise BadInput(f"{name} must be at least 1; got {value}")
    if spec.timeout_seconds is not None and not 0 < spec.timeout_seconds <= YEAR_SECONDS:
        raise BadInput(f"--timeout must be above 0 and at most a year; got {spec.timeout_seconds:g} s")
    if not 0 < spec.sample_seconds <= YEAR_SECONDS:
        raise BadInput(f"--sample-seconds must be above 0 and at most a year; got {spec.sample_seconds:g} s")
    if spec.data_dir is not None and spec.cluster == "local" and not Path(spec.data_dir).is_dir():
        raise BadInput(f"--data-dir {spec.data_dir} is not a folder")


def _user_file(spec: RunSpec, plugins: Plugins) -> UserFile:
    user_file = read_user_file(spec.config)
    known = plugins.cases()
    for name in user_file.cases:
        if name not in known:
            raise unknown_name("case", name, known, f"(in {user_file.path}, table [cases.{name}])")
    return user_file


def _tuning(spec: RunSpec, manifest: Manifest, site: Site) -> Layer | None:
    vendor, model = site.backend.vendor, site.device.model
    folder, profile = site.backend.tuning_folder(), choose_profile(spec, manifest)
    tuning = find_tuning(folder, spec.case, model, spec.nodes, spec.devices, profile)
    if tuning is None or site.device.slice:  # published values are those of whole cards
        return None
    return Layer(f"{TUNING_LAYER}{vendor} {model} ({tuning.source})", tuning.values, is_deviation=True)


def _checked_files(spec: RunSpec, manifest: Manifest, config: Resolved, site: Site) -> tuple[DataFile, ...]:
    if manifest.check_files is None:
        return ()
    answer = check_nodes(
        site.cluster, site.nodes, CheckRequest(manifest.check_files, _absolute(spec.data_dir), config.values)
    )
    if answer.problem:
        raise BadInput(answer.problem)
    return answer.files


def _job(
    spec: RunSpec, case: Case, site: Site, settings: Settings, peaks: Sequence[Peak], files: tuple[DataFile, ...]
) -> Job:
    return Job(
        run_id=_run_id(spec, site.backend.vendor),
        case=case.manifest.name,
        case_version=case.manifest.version,
        case_target=case.reference.target,
        profile=settings.profile,
        precision=settings.precision,
        vendor=site.backend.vendor,
        vendor_title=site.backend.title or {"en": site.backend.vendor},
        adapter=site.choice.facts.adapter,
        config=settings.config,
        nodes=site.parts,
        master_address=site.parts[0].address,
        master_port=site.facts[0].free_port,
        host_workers=site.host_workers,
        memory_scope=site.backend.memory_scope,
        has_allocator=site.backend.has_allocator and not site.choice.facts.simulated,
        peak=_peak(peaks, site.device, settings.precision.peak_row),
        accept_low_peaks=spec.accept_low_peaks,
        oversubscribed=site.oversubscribed,
        simulated=site.choice.facts.simulated,
        sample_seconds=spec.sample_seconds,
        timeout_seconds=spec.timeout_seconds,
        data_dir=_absolute(spec.data_dir),
        data_files=files,
    )


def _peak(peaks: Sequence[Peak], device: Device, row: str) -> Peak | None:
    if device.slice:
        return None
    return next((peak for peak in peaks if peak.model == device.model and peak.row == row), None)


def _absolute(data_dir: str | None) -> str | None:
    return str(Path(data_dir).absolute()) if data_dir else None


def _run_id(spec: RunSpec, vendor: str) -> str:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{now}-{spec.case}-{vendor}-{spec.nodes}x{spec.devices}-{secrets.token_hex(3)}"

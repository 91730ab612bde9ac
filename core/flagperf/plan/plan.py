"""make_plan: everything that a run will do, decided before anything starts."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from flagperf.api import DataFile, Device, LaunchCommand, Peak
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.reach import check_nodes, with_meeting_place
from flagperf.kit import link_bytes_per_second
from flagperf.plan.card_models import UNKNOWN
from flagperf.plan.case_checks import (
    MemoryEstimate,
    estimate_memory,
    operator_libraries,
    recording_to_replay,
    steps_to_record,
)
from flagperf.plan.measured_peak import with_measured_peak
from flagperf.plan.placement import Placement, find_placement
from flagperf.plan.settings import (
    CaseSettings,
    case_file,
    make_settings,
    missing_data,
    refuse_unsupported,
    resolve_values,
    tuning_layer,
)
from flagperf.plugins.installed import Case, Plugins
from flagperf.spec.job import WORKER_MODULE, Job, RunSpec
from flagperf.spec.manifest import Manifest
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.protocol import CheckAnswer, CheckRequest, work_orders
from flagperf.spec.user_file import UserFile
from flagperf.spec.values import Layer, Resolved
from flagperf.text import is_utf8

PORT_TO_COME = 0
"""The port, and the address on other machines, are chosen on the first node right before a run."""

YEAR_SECONDS = 365 * 24 * 3600.0


class Plan(msgspec.Struct, frozen=True):
    spec: RunSpec
    job: Job
    manifest: Manifest
    nodes: tuple[NodeFacts, ...]
    commands: tuple[LaunchCommand, ...]
    """One per node."""
    agent_commands: tuple[tuple[str, ...], ...]
    """What reaches the agent of each node. Empty where agents are simply started on this machine."""
    vendor_note: str
    """Which vendor, and why where it was not asked for."""
    env_script: str = ""
    """Of the vendor, on the first node."""
    memory: MemoryEstimate | None = None
    """Of the fullest rank, where the case estimates it."""
    data_problem: str = ""
    """Why the case cannot use the values or --data-dir. Always empty in a plan that is run."""


def make_plan(spec: RunSpec, plugins: Plugins, fleet: Fleet, *, needs_worker: bool = True) -> Plan:
    """`needs_worker` false: plan also where the case's libraries are not installed or its data cannot be used."""
    _check_request(spec, fleet)
    case, user_file = check_values(spec, plugins)
    record_steps, recording = steps_to_record(spec, case.manifest), recording_to_replay(spec, case.manifest)
    if needs_worker:
        _raise_problem(missing_data(spec, case.manifest))
    placement = find_placement(spec, plugins, fleet, case.manifest.requires, user_file, needs_worker)
    tuning = _tuning(spec, case.manifest, placement)
    peaks = placement.backend.peaks()
    settings = make_settings(spec, case.manifest, user_file, placement.backend, tuning)
    refuse_unsupported(settings.precision, placement.backend, placement.device.model)
    data = _check_data(spec, case.manifest, settings.config, fleet)
    if needs_worker:
        _raise_problem(data.problem)
    libraries = operator_libraries(case.manifest, settings.config, plugins)
    job = _job(spec, case, placement, settings, peaks, data.files, libraries)
    job = msgspec.structs.replace(job, record_steps=record_steps, recording=recording)
    if not needs_worker:  # what is shown can be started by hand; a run chooses once more, right before its start
        job = with_meeting_place(job, fleet, spec.interface)
    launcher = plugins.launcher(placement.backend.vendor)
    interface = spec.interface or (UNKNOWN if spec.nodes > 1 and not fleet.nodes_share_host else "")
    commands = tuple(
        launcher.command(order.share(interface), fleet.python(order.node_index), WORKER_MODULE)
        for order in work_orders(job)
    )
    memory = estimate_memory(case, settings.config, placement.device.memory_bytes, "what it reports")
    return Plan(
        spec=spec,
        job=job,
        manifest=case.manifest,
        nodes=placement.facts,
        commands=commands,
        agent_commands=() if fleet.writes_here else tuple(tuple(fleet.command(each.index)) for each in job.nodes),
        vendor_note=placement.choice.note,
        env_script=placement.choice.facts.env_script,
        memory=memory,
        data_problem=data.problem,
    )


def renamed(plan: Plan) -> Plan:
    """The same plan for one more run."""
    run_id = _run_id(plan.spec, plan.job.vendor)
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, run_id=run_id))


def _raise_problem(problem: str) -> None:
    if problem:
        raise BadInput(problem)


def _check_request(spec: RunSpec, fleet: Fleet) -> None:
    if spec.timeout_seconds is not None and not 0 < spec.timeout_seconds <= YEAR_SECONDS:
        raise BadInput(f"--timeout must be above 0 and at most a year; got {spec.timeout_seconds:g} s")
    if not 0 < spec.sample_seconds <= YEAR_SECONDS:
        raise BadInput(f"--sample-seconds must be above 0 and at most a year; got {spec.sample_seconds:g} s")
    if spec.data_dir is not None and fleet.nodes_share_host and not is_folder(Path(spec.data_dir)):
        raise BadInput(f"--data-dir {spec.data_dir} is not a folder")
    if not is_utf8(_absolute(spec.data_dir) or ""):
        raise BadInput(f"--data-dir {spec.data_dir}: the name of a folder above it is not UTF-8; rename that one")


def _tuning(spec: RunSpec, manifest: Manifest, placement: Placement) -> Layer | None:
    if placement.device.slice:  # published values are those of whole cards
        return None
    return tuning_layer(placement.backend, placement.device.model, spec, manifest)


def check_values(spec: RunSpec, plugins: Plugins) -> tuple[Case, UserFile]:
    """Raises BadInput for a wrong case, key or run, before any node is asked."""
    case, user_file = plugins.case(spec.case), case_file(spec, plugins)
    steps_to_record(spec, case.manifest)
    recording_to_replay(spec, case.manifest)
    resolve_values(spec, case.manifest, user_file, tuning=None)
    return case, user_file


def _check_data(spec: RunSpec, manifest: Manifest, config: Resolved, fleet: Fleet) -> CheckAnswer:
    missing = missing_data(spec, manifest)
    if missing or manifest.check_files is None:
        return CheckAnswer(problem=missing)
    request = CheckRequest(manifest.check_files, _absolute(spec.data_dir), config.values)
    return check_nodes(fleet, request)


def _job(
    spec: RunSpec,
    case: Case,
    placement: Placement,
    settings: CaseSettings,
    peaks: Sequence[Peak],
    files: tuple[DataFile, ...],
    libraries: dict[str, str],
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
        master_port=PORT_TO_COME,
        host_workers=placement.host_workers,
        memory_scope=placement.backend.memory_scope,
        has_allocator=placement.backend.has_allocator,
        peaks=with_measured_peak(
            _peaks(peaks, placement.device),
            spec.peak_from,
            placement.backend.vendor,
            placement.device,
            settings.precision,
            placement.choice.facts.simulated,
            placement.cores_of_device,
        ),
        accept_low_peaks=spec.accept_low_peaks,
        oversubscribed=placement.oversubscribed,
        simulated=placement.choice.facts.simulated,
        case_package=case.plugin.adapter,
        operator_libraries=libraries,
        sample_seconds=spec.sample_seconds,
        timeout_seconds=spec.timeout_seconds,
        data_dir=_absolute(spec.data_dir),
        data_files=files,
    )


def _peaks(peaks: Sequence[Peak], device: Device) -> tuple[Peak, ...]:
    """Of the whole card: a slice has none."""
    return () if device.slice else (*(peak for peak in peaks if peak.model == device.model), *_host_link(device))


def _host_link(device: Device) -> Iterator[Peak]:
    """Of this very card, not of its model: it depends on the slot."""
    link = device.properties.get("pcie", "")
    if (rate := link_bytes_per_second(link)) is not None:
        yield Peak(device.model, "host_link", rate, f"PCIe {link}, by sysfs", "high")


def _absolute(data_dir: str | None) -> str | None:
    return str(Path(data_dir).absolute()) if data_dir else None


def _run_id(spec: RunSpec, vendor: str) -> str:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{now}-{spec.case}-{vendor}-{spec.nodes}x{spec.devices}-{secrets.token_hex(3)}"

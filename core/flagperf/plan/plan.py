"""Make the plan of a run: everything that it will do, decided before anything starts."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flagperf.api import LaunchCommand, Peak, Precision, Recording
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.reach import check_nodes, with_meeting_place
from flagperf.kit import link_bytes_per_second
from flagperf.plan.case_checks import (
    MemoryEstimate,
    estimate_memory,
    operator_libraries,
    recording_to_replay,
    steps_to_record,
)
from flagperf.plan.placement import Placement, find_placement
from flagperf.plan.settings import (
    UNKNOWN,
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
    """Plan a run. Without `needs_worker`, do so also if the case's libraries are missing or its data cannot be used."""
    case, user_file, record_steps, recording = check_values(spec, plugins)
    data_dir = _absolute(spec.data_dir)
    if data_dir is not None and fleet.nodes_share_host and not is_folder(Path(data_dir)):
        raise BadInput(f"--data-dir {spec.data_dir} is not a folder")
    missing = missing_data(spec, case.manifest)
    if needs_worker and missing:
        raise BadInput(missing)
    placement = find_placement(spec, plugins, fleet, case.manifest.requires, user_file, needs_worker)
    tuning = None
    if not placement.device.slice:  # published values are those of whole cards
        tuning = tuning_layer(placement.backend, placement.device.model, spec, case.manifest)
    peaks = placement.backend.peaks()
    settings = make_settings(spec, case.manifest, user_file, placement.backend, tuning)
    refuse_unsupported(settings.precision, placement.backend, placement.device.model)
    data = CheckAnswer(problem=missing)
    if not missing and case.manifest.check_files is not None:
        data = check_nodes(fleet, CheckRequest(case.manifest.check_files, data_dir, settings.config.values))
    if needs_worker and data.problem:
        raise BadInput(data.problem)
    libraries = operator_libraries(case.manifest, settings.config, plugins)
    job = _job(spec, case, placement, settings, _peaks(peaks, placement, spec, settings.precision), libraries)
    job = msgspec.structs.replace(job, data_files=data.files, record_steps=record_steps, recording=recording)
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
    """Return the same plan for one more run."""
    run_id = _run_id(plan.spec, plan.job.vendor)
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, run_id=run_id))


def check_values(spec: RunSpec, plugins: Plugins) -> tuple[Case, UserFile, int, Recording | None]:
    """Raise BadInput for a wrong number, case, key or run, before any node is asked.

    Returns the case, the user's file, how many steps to record, and the recorded operators to replay.
    """
    if spec.timeout_seconds is not None and not 0 < spec.timeout_seconds <= YEAR_SECONDS:
        raise BadInput(f"--timeout must be above 0 and at most a year; got {spec.timeout_seconds:g} s")
    if not 0 < spec.sample_seconds <= YEAR_SECONDS:
        raise BadInput(f"--sample-seconds must be above 0 and at most a year; got {spec.sample_seconds:g} s")
    if not is_utf8(_absolute(spec.data_dir) or ""):
        raise BadInput(f"--data-dir {spec.data_dir}: the name of a folder above it is not UTF-8; rename that one")
    case, user_file = plugins.case(spec.case), case_file(spec, plugins)
    record_steps, recording = steps_to_record(spec, case.manifest), recording_to_replay(spec, case.manifest)
    resolve_values(spec, case.manifest, user_file, tuning=None)
    return case, user_file, record_steps, recording


def _job(
    spec: RunSpec,
    case: Case,
    placement: Placement,
    settings: CaseSettings,
    peaks: tuple[Peak, ...],
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
        peaks=peaks,
        accept_low_peaks=spec.accept_low_peaks,
        oversubscribed=placement.oversubscribed,
        simulated=placement.choice.facts.simulated,
        case_package=case.plugin.adapter,
        operator_libraries=libraries,
        sample_seconds=spec.sample_seconds,
        timeout_seconds=spec.timeout_seconds,
        data_dir=_absolute(spec.data_dir),
        data_files=(),
    )


def _peaks(peaks: Sequence[Peak], placement: Placement, spec: RunSpec, precision: Precision) -> tuple[Peak, ...]:
    """Return the peaks of the card's model, of its slot and of `--peak-from`. A slice has none of the whole card."""
    device, known = placement.device, []
    if not device.slice:
        known = [peak for peak in peaks if peak.model == device.model]
        link = device.properties.get("pcie", "")
        if (rate := link_bytes_per_second(link)) is not None:
            known.append(Peak(device.model, "host_link", rate, f"PCIe {link}, by sysfs", "high"))
    if spec.peak_from is None:
        return tuple(known)
    from flagperf.plan.measured_peak import with_measured_peak  # not at the top: few runs name another one

    return with_measured_peak(
        tuple(known),
        spec.peak_from,
        placement.backend.vendor,
        device,
        precision,
        placement.choice.facts.simulated,
        placement.cores_of_device,
    )


def _absolute(data_dir: str | None) -> str | None:
    return str(Path(data_dir).absolute()) if data_dir else None


def _run_id(spec: RunSpec, vendor: str) -> str:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{now}-{spec.case}-{vendor}-{spec.nodes}x{spec.devices}-{secrets.token_hex(3)}"

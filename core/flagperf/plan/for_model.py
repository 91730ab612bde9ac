"""A plan for a card model that need not be present: everything that data and adapters say without a machine.

What only the machine can say (driver, identities, CPUs, data) is listed as unknown, never guessed.
"""

from __future__ import annotations

import msgspec

from flagperf.api import Device, LaunchCommand, Launcher, NodeShare, Peak, Precision, Setting
from flagperf.errors import PluginFailed
from flagperf.plan.device_models import KnownModel, find_model
from flagperf.plan.estimate import MemoryEstimate, estimate_memory
from flagperf.plan.recording import recording_to_replay, steps_to_record
from flagperf.plan.settings import make_settings, published_profile, refuse_unsupported
from flagperf.plan.tuning import tuning_layer
from flagperf.plan.userfile import case_file
from flagperf.plugins.installed import Plugins
from flagperf.spec import WORKER_MODULE, PublishedResult, Resolved, RunSpec, check_counts

UNKNOWN = "?"
"""In place of a value that depends on the node."""

NOT_KNOWN = {
    "cards": "their ids, memory and evidence: asked of the nodes",
    "driver": "asked of the nodes, with the versions of the vendor's software",
    "cpus": "cores and those near a card decide threads and binding",
    "data": "no file was read",
}


class ModelPlan(msgspec.Struct, frozen=True):
    case: str
    case_version: int
    profile: str
    vendor: str
    adapter: str
    device_model: str
    nodes: int
    devices: int
    precision: Precision
    peak: Peak | None
    """The ceiling that MFU divides by."""
    peaks: tuple[Peak, ...]
    """All peaks that the adapter has for this model."""
    config: Resolved
    command: LaunchCommand
    """Of the first node, with `?` for what only the node knows."""
    env_script: str
    """The usual path of the vendor's script; empty where none is needed."""
    memory: MemoryEstimate | None
    unknown: dict[str, str]

    @property
    def shape(self) -> str:
        return f"{self.nodes}x{self.devices}"


def plan_for_model(spec: RunSpec, plugins: Plugins, device_model: str) -> ModelPlan:
    """With the published profile unless another was asked for, and with the vendor's tuning for this model."""
    check_counts(spec)
    case = plugins.case(spec.case)
    manifest = case.manifest
    steps_to_record(spec, manifest)
    recording_to_replay(spec, manifest)
    card = find_model(plugins, device_model, spec.vendor)
    spec = msgspec.structs.replace(spec, profile=spec.profile or published_profile(manifest))
    backend = plugins.checked_backend(card.vendor)
    tuning = tuning_layer(backend, card.name, spec, manifest)
    settings = make_settings(spec, manifest, case_file(spec, plugins), backend, tuning)
    refuse_unsupported(settings.precision, backend, card.name)
    references = [*manifest.references, *_all_references(plugins)]
    launcher = plugins.launcher(card.vendor)
    return ModelPlan(
        case=manifest.name,
        case_version=manifest.version,
        profile=settings.profile,
        vendor=card.vendor,
        adapter=card.given.adapter,
        device_model=card.name,
        nodes=spec.nodes,
        devices=spec.devices,
        precision=settings.precision,
        config=settings.config,
        peaks=card.peaks,
        peak=next((peak for peak in card.peaks if peak.row == settings.precision.peak_row), None),
        command=_command(launcher, card, spec),
        env_script=launcher.env_script_path,
        memory=estimate_memory(case, settings.config, *card.memory_bytes(references)),
        unknown=NOT_KNOWN,
    )


def _all_references(plugins: Plugins) -> list[PublishedResult]:
    return [reference for case in plugins.complete_cases().values() for reference in case.manifest.references]


def _command(launcher: Launcher, card: KnownModel, spec: RunSpec) -> LaunchCommand:
    """Asked for twice, for two made-up nodes that differ in cores and port: what differs is unknown here."""
    one, other = (launcher.command(_made_up_share(card, spec, number), "python", WORKER_MODULE) for number in (1, 2))
    if (len(one.argv), len(one.settings)) != (len(other.argv), len(other.settings)):
        what = "command gives another number of words or settings for each port and number of cores"
        raise PluginFailed(f"adapter {card.given.adapter} failed: {what}")
    argv = tuple(_agreed(*pair) for pair in zip(one.argv, other.argv, strict=True))
    settings = tuple(_agreed_setting(*pair) for pair in zip(one.settings, other.settings, strict=True))
    return LaunchCommand(argv, settings, one.remove)


def _made_up_share(card: KnownModel, spec: RunSpec, number: int) -> NodeShare:
    devices = tuple(
        Device(f"card {index}", card.name, card.name, index, uuid=f"<UUID of card {index}>")
        for index in range(spec.devices)
    )
    return NodeShare(
        node_index=0,
        num_nodes=spec.nodes,
        devices=devices,
        master_address="<address of node 0>",
        master_port=number * 11111,
        allowed_cores=number * spec.devices,
        host_workers=spec.devices,
    )


def _agreed(one: str, other: str) -> str:
    """An option keeps its name: --master-port=?"""
    return one if one == other else one[: one.find("=") + 1] + UNKNOWN


def _agreed_setting(one: Setting, other: Setting) -> Setting:
    if one == other:
        return one
    reason = one.reason if one.reason == other.reason else "depends on the node"
    return msgspec.structs.replace(one, value=_agreed(one.value, other.value), reason=reason)

"""Card models by name; a plan without the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from flagperf.api import Device, DeviceBackend, LaunchCommand, Launcher, NodeShare, Peak, Precision
from flagperf.errors import BadInput, FlagPerfError, PluginFailed
from flagperf.plan.case_checks import MemoryEstimate, estimate_memory, recording_to_replay, steps_to_record
from flagperf.plan.settings import (
    UNKNOWN,
    case_file,
    make_settings,
    published_profile,
    refuse_unsupported,
    tuned_models,
    tuning_layer,
)
from flagperf.plugins.installed import Plugins, Provided
from flagperf.spec.job import WORKER_MODULE, RunSpec, check_counts
from flagperf.spec.published import PublishedResult
from flagperf.spec.values import Resolved
from flagperf.units import GIB

_SIZE = re.compile(r"-(\d+)GB$", re.IGNORECASE)
"""How published names end: C500-64GB."""


class KnownModel(msgspec.Struct, frozen=True):
    """A card model of models.toml or with tuning, present or not. `name` is the one that peaks and tuning use."""

    given: Provided
    name: str
    other_name: str = ""
    pattern: str = ""
    peaks: tuple[Peak, ...] = ()

    @property
    def vendor(self) -> str:
        backend: DeviceBackend = self.given.value
        return backend.vendor

    def is_named(self, text: str) -> bool:
        return text.lower() == self.name.lower()

    def is_called(self, text: str) -> bool:
        """Return true for any of its names, with or without the memory size at the end."""
        words = {text.lower(), _SIZE.sub("", text).lower()}
        if words & {self.name.lower(), self.other_name.lower()}:
            return True
        return bool(self.pattern) and any(re.fullmatch(self.pattern, word, re.IGNORECASE) for word in words)

    def memory_bytes(self, references: Iterable[PublishedResult]) -> tuple[int | None, str]:
        """Return the size that published results or its name give, and its source. (A present card reports its own.)"""
        for reference in references:
            is_it = reference.vendor == self.vendor and self.is_called(reference.device)
            if is_it and "mem_total" in reference.values:
                return int(reference.values["mem_total"]), f"nominal, of the published {reference.device}"
        size = _SIZE.search(self.name)
        if size is not None:
            return int(size[1]) * GIB, f"nominal, by the name {self.name}"
        return None, f"no published result names {self.name}"


def find_model(plugins: Plugins, text: str, asked_vendor: str | None) -> KnownModel:
    """Return the model that a user means. `asked_vendor`, a word or alias, narrows the search."""
    word = plugins.vendor_word(asked_vendor) if asked_vendor else None
    known, problems = known_models(plugins, word)
    found = [card for card in known if card.is_named(text)] or [card for card in known if card.is_called(text)]
    if not found:
        raise _unknown_model(plugins, text, known, word, problems)
    if len({card.vendor for card in found}) > 1:
        listed = ", ".join(f"{card.name} of {card.vendor}" for card in found)
        raise BadInput(f"--device-model {text}: several adapters know it ({listed}); choose one with --vendor")
    if len(found) > 1:
        raise BadInput(f"--device-model {text} may be {' or '.join(card.name for card in found)}; name one of them")
    return found[0]


def _unknown_model(
    plugins: Plugins, text: str, known: Sequence[KnownModel], word: str | None, problems: Sequence[str]
) -> BadInput:
    """Return the error with all known models, and the adapter to install if published results name such a card."""
    present = {given.value.vendor for given in plugins.device_backends()}
    words = {text.lower(), _SIZE.sub("", text).lower()}
    published_by = {
        reference.vendor
        for reference in _all_references(plugins)
        if words & {reference.device.lower(), _SIZE.sub("", reference.device).lower()}
    }
    packages = [
        f"it comes with the package flagperf-{vendor}: install that" for vendor in sorted(published_by - present)
    ]
    hints = "; ".join([*packages, *problems, *plugins.broken_adapters()])
    vendors = dict.fromkeys(card.vendor for card in known)
    listed = [f"{vendor}: {', '.join(card.name for card in known if card.vendor == vendor)}" for vendor in vendors]
    who = f"the adapter of {word} does not know it" if word else "no installed adapter knows it"
    more = f" ({hints})" if hints else ""
    return BadInput(f"--device-model {text}: {who}{more}. Known models: {'; '.join(listed) or 'none'}")


def _all_references(plugins: Plugins) -> list[PublishedResult]:
    return [reference for case in plugins.complete_cases().values() for reference in case.manifest.references]


def known_models(plugins: Plugins, word: str | None) -> tuple[list[KnownModel], list[str]]:
    """Return the models, and the problems of adapters that cannot list theirs."""
    known: list[KnownModel] = []
    problems: list[str] = []
    for given in plugins.device_backends():
        try:
            known += _models_of(given) if word in (None, given.value.vendor) else []
        except FlagPerfError as error:
            problems.append(f"{given.adapter}: {error}")
    return known, problems


def _models_of(given: Provided) -> list[KnownModel]:
    backend: DeviceBackend = given.checked(DeviceBackend)
    models, peaks = {model.name: model for model in backend.models()}, backend.peaks()
    for model in models.values():
        try:
            re.compile(model.name_pattern)
        except re.error as error:
            pattern = f"the name_pattern of {model.name} is not a regular expression: {error}"
            raise PluginFailed(f"adapter {given.adapter} failed: models: {pattern}") from None
    found = []
    for name in dict.fromkeys([*models, *(peak.model for peak in peaks), *tuned_models(backend.tuning_folder())]):
        first, _, rest = name.partition(" ")  # card names often start with the vendor: ACME A1
        without_vendor = rest if rest and first.lower() == backend.vendor else name
        found.append(
            KnownModel(
                given=given,
                name=name,
                other_name=models[name].short_name if name in models else without_vendor,
                pattern=models[name].name_pattern if name in models else "",
                peaks=tuple(peak for peak in peaks if peak.model == name),
            )
        )
    return found


NOT_KNOWN = {
    "cards": "their ids, memory and evidence: asked of the nodes",
    "driver": "asked of the nodes, with the versions of the vendor's software",
    "cpus": "cores and those near a card decide threads and binding",
    "data": "no file was read",
}


class ModelPlan(msgspec.Struct, frozen=True):
    """A plan for a card model that need not be present: what data and adapters say without a machine.

    What only the machine can say (driver, identities, CPUs, data) is listed as unknown, never guessed.
    """

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
    """Plan a run on a card model, with the published profile unless another was asked for, and the vendor's tuning."""
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


def _command(launcher: Launcher, card: KnownModel, spec: RunSpec) -> LaunchCommand:
    """Ask twice, for two made-up nodes that differ in cores and port: what differs is unknown here."""
    devices = tuple(
        Device(f"card {index}", card.name, card.name, index, uuid=f"<UUID of card {index}>")
        for index in range(spec.devices)
    )
    commands = []
    for number in (1, 2):
        share = NodeShare(
            node_index=0,
            num_nodes=spec.nodes,
            devices=devices,
            master_address="<address of node 0>",
            master_port=number * 11111,
            allowed_cores=number * spec.devices,
            host_workers=spec.devices,
        )
        commands.append(launcher.command(share, "python", WORKER_MODULE))
    one, other = commands
    if (len(one.argv), len(one.settings)) != (len(other.argv), len(other.settings)):
        what = "command gives a different number of words or settings for each port and number of cores"
        raise PluginFailed(f"adapter {card.given.adapter} failed: {what}")
    settings = []
    for mine, its in zip(one.settings, other.settings, strict=True):
        reason = mine.reason if mine.reason == its.reason else "depends on the node"
        settings.append(msgspec.structs.replace(mine, value=_agreed(mine.value, its.value), reason=reason))
    argv = tuple(_agreed(*pair) for pair in zip(one.argv, other.argv, strict=True))
    return LaunchCommand(argv, tuple(settings), one.remove)


def _agreed(one: str, other: str) -> str:
    """Return the text, or `?` where the two differ. An option keeps its name: --master-port=?"""
    return one if one == other else one[: one.find("=") + 1] + UNKNOWN

"""All metrics of a run from its record."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.metrics import inference, mfu, others, quality, samples, throughput
from flagperf.metrics.definitions import DEFINITIONS, TARGET, Definition, quality_definition
from flagperf.metrics.finding import Finding, Findings
from flagperf.metrics.memory import memory
from flagperf.metrics.metric import Mark, Metric, Record
from flagperf.metrics.ranks import RankRecord, failure, rank_records
from flagperf.metrics.times import times
from flagperf.metrics.training import NO_INFERENCE, NO_TRAINING, training_of
from flagperf.metrics.window import window_of
from flagperf.spec import Job, Manifest


def compute_metrics(job: Job, manifest: Manifest, record: Record) -> tuple[Metric, ...]:
    """Always the same metrics in the same order: those of DEFINITIONS, the qualities of the case, the target.

    Whatever the record lacks, nothing is raised: a metric that cannot be had has a reason in place of a value. A
    quality that a case calls `loss` takes the place of the loss of the last step.
    """
    ranks = rank_records(record.ranks)
    findings = _findings(job, manifest, record, ranks)
    own = {entry.name for entry in manifest.qualities}
    definitions = [
        *(_in_units_of(manifest, definition) for definition in DEFINITIONS if definition.name not in own),
        *(quality_definition(entry) for entry in manifest.qualities),
        TARGET,
    ]
    marks = run_marks(job, record, ranks, findings)
    return tuple(definition.metric(findings[definition.name], marks) for definition in definitions)


def run_marks(job: Job, record: Record, ranks: Sequence[RankRecord], findings: Findings) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    if job.oversubscribed:
        marks.append("oversubscribed")
    if others.is_busy_host(job, findings["cpu_others"]):
        marks.append("busy_host")
    if any(rank.started.mapping == "none" or not _has_device(job, rank) for rank in ranks):
        marks.append("unverified_mapping")
    if any(file.torn for file in (record.parent, *record.ranks, *record.samples)):
        marks.append("torn_record")
    return tuple(marks)


def _has_device(job: Job, rank: RankRecord) -> bool:
    """Whether the card that the worker says it has is one of those that the job gave its node."""
    node = next((node for node in job.nodes if node.index == rank.started.node_index), None)
    return node is not None and rank.started.device_id in {device.id for device in node.devices}


def _findings(job: Job, manifest: Manifest, record: Record, ranks: Sequence[RankRecord]) -> dict[str, Finding]:
    failed = failure(job, ranks)
    training = training_of(job, manifest, ranks, failed)
    window = window_of(training)
    is_inference = manifest.kind == "inference"
    devices = samples.device_samples(job, record.parent, record.samples)
    findings: dict[str, Finding] = {
        **times(job, manifest, record.parent, ranks, training, failed),
        **throughput.counts(training),
        **(throughput.no_rates(NO_TRAINING) if is_inference else throughput.rates(window, job.world_size)),
        **(inference.rates(manifest, ranks, window) if is_inference else inference.no_rates(NO_INFERENCE)),
        **throughput.step_times(window),
        **throughput.shares(window),
        **mfu.model_flops(job, manifest, ranks, window),
        **memory(job, devices, ranks, failed),
        "probe_cost": samples.probe_cost(job, record.samples),
        "cpu_others": others.others_share(job, record.samples),
        **quality.losses(NO_TRAINING if is_inference else training),
        **{entry.name: quality.quality(entry, ranks, failed) for entry in manifest.qualities},
    }
    return {**findings, "target": quality.target(job, manifest, findings)}


def _in_units_of(manifest: Manifest, definition: Definition) -> Definition:
    if definition.name in inference.NAMES:
        return msgspec.structs.replace(definition, unit=manifest.sample_unit)
    if definition.unit == "samples/s" and not mfu.counts_tokens(manifest):
        return msgspec.structs.replace(definition, unit=manifest.sample_unit)
    return definition

"""`report --format json`: runs for other programs. Fields may be added. A change that renames a field or gives it a
new meaning increments EXPORT_SCHEMA.

    {"schema": 1, "runs": [{
        "id", "created" (UTC, ISO 8601), "status" (null without an ending), "reason",
        "unfinished" (running, killed or unknown, if it has no ending, else null), "tags", "note",
        "case": {"name", "version", "kind", "profile", "published" (true for the published configuration: its profile,
                 with no value changed except by a vendor's tuning)},
        "vendor" (`<vendor> (simulated)` for a simulated run), "adapter", "flagperf_version", "simulated",
        "redacted" (true for a copy that `runs redact` made),
        "device": {"model", "short_name", "memory_bytes"},
        "shape": {"nodes", "devices_per_node", "devices"},
        "precision",
        "overrides": {key: {"value", "layer"}},
        "metrics": {name: {"value" (null if missing), "unit", "scope", "definition", "reason", "detail", "message",
                           "marks", "interval", "inputs", "version"}; includes `loss_aligned` if a reference was given
                    or the case's page has that column},
        "rows": [measured rows: {"name", "labels", "unit", "rank", "num_repeats", "median", "low", "high", "work",
                                 "problem", "marks"}],
        "environment": [one per node: {"host", "facts": {name: {"value", "how", "reason"}}, "packages",
                                       "variables", "versions" (driver and similar)}],
        "doubts": [{"rule" (its id, also a mark of the metrics), "message", "text" (in English), "metrics"}],
        "group": {"id", "index", "of", "arm"} of a run of `run --repeat`, else null
    }]}

Metrics are in base units (bytes, seconds, fractions of 1) and are not rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flagperf.bundle.run_record import RecordedRun
from flagperf.messages import usable, words
from flagperf.metrics.alignment import LOSS_ALIGNED, NO_REFERENCE
from flagperf.metrics.entry import Metric
from flagperf.report.wording import interval_method, is_published, vendor_word
from flagperf.spec.values import flatten

EXPORT_SCHEMA = 1


def to_json(runs: Sequence[RecordedRun]) -> bytes:
    exported = {"schema": EXPORT_SCHEMA, "runs": [exported_run(recorded) for recorded in runs]}
    return msgspec.json.format(msgspec.json.encode(exported), indent=2)


def exported_run(recorded: RecordedRun) -> dict[str, Any]:
    """Return the fields of one run."""
    run, job = recorded.run, recorded.run.job
    values = dict(flatten(job.config.values))
    lacks_verdict = LOSS_ALIGNED.name in run.manifest.page.columns and run.metric(LOSS_ALIGNED.name) is None
    metrics = (*run.metrics, NO_REFERENCE) if lacks_verdict else run.metrics
    environment = []
    for node in recorded.nodes:
        versions = next((facts.versions for facts in node.vendors if facts.vendor == job.vendor), {})
        fields = _fields(node.environment, "facts", "packages", "variables")
        environment.append({"host": node.host, **fields, "versions": versions})
    doubts = [
        {**_fields(doubt, "rule", "message", "metrics"), "text": words(doubt.message, "en")}
        for doubt in recorded.doubts
    ]
    published = {"profile": job.profile, "published": is_published(run)}
    return {
        "id": run.id,
        "created": run.created,
        "status": run.ending.status if run.ending else None,
        "reason": run.ending.reason if run.ending else "",
        "unfinished": recorded.unfinished,
        "tags": recorded.labels.tags,
        "note": recorded.labels.note,
        "case": {**_fields(run.manifest, "name", "version", "kind"), **published},
        "vendor": vendor_word(run),
        "adapter": job.adapter,
        "flagperf_version": run.flagperf_version,
        "simulated": run.simulated,
        "redacted": run.redacted,
        "device": _fields(job.device_model, "model", "short_name", "memory_bytes"),
        "shape": {"nodes": len(job.nodes), "devices_per_node": job.devices_per_node, "devices": job.world_size},
        "precision": job.precision.name,
        "overrides": {key: {"value": values[key], "layer": layer} for key, layer in job.config.deviations.items()},
        "metrics": {metric.name: _metric(metric) for metric in metrics},
        "rows": run.rows,
        "environment": environment,
        "doubts": doubts,
        "group": run.group,
    }


def _metric(metric: Metric) -> dict[str, Any]:
    fields = ("value", "unit", "scope", "definition", "reason", "message", "marks", "inputs", "version")
    interval = None
    if metric.interval is not None:  # its method is an English phrase, not a code: programs rely on it
        method = interval_method(metric.interval, "en")
        interval = {**_fields(metric.interval, "low", "high"), "method": method}
    detail = words(usable(metric.message, metric.detail), "en")
    return {**_fields(metric, *fields), "detail": detail, "interval": interval}


def _fields(struct: msgspec.Struct, *names: str) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in names}

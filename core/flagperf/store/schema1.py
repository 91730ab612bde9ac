"""Converts bundles of store schema 1 to the current structs. Differences in schema 1:

- a job had one peak and no kind, and the user's layers were recognised by their names;
- the unit in the manifest implied what is counted;
- a run had the metrics of all kinds, without versions, and reasons only in English;
- the method of an interval was an English phrase, and a missing requirement was a string.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.metrics import Metric, Observed, recompute_metrics
from flagperf.spec import with_counts
from flagperf.store.run import Run

METRICS = (
    "e2e_time",
    "init_time",
    "train_time",
    "p_whole",
    "p_train",
    "p_core",
    "p_whole_all",
    "token/p/s",
    "p_val_whole",
    "p_val_core",
    "p_infer_whole",
    "p_infer_core",
    "p_infer_padded",
    "step_time_p50",
    "step_time_p90",
    "step_time_p99",
    "data_wait_share",
    "padding_ratio",
    "steps_kept",
    "steps_dropped",
    "samples_kept",
    "tflops_per_device",
    "mfu",
    "mfu_useful",
    "mfu_nominal-6n",
    "mfu_nominal-2n",
    "mfu_palm",
    "mem_used",
    "mem_total",
    "mem_baseline",
    "mem_allocator",
    "mem_remainder",
    "probe_cost",
    "cpu_others",
    "loss",
    "loss_first",
)
"""Metrics of every run, before the qualities of its case and the target."""

METHODS = {"95 %, batch means": "batch_means_95"}


def upgraded_run(content: dict[str, Any]) -> dict[str, Any]:
    """Convert the content of run.json from schema 1. Raises KeyError, TypeError or AttributeError if it is not valid
    schema 1."""
    job, manifest = dict(content["job"]), with_counts(content["manifest"])
    peak = job.pop("peak")
    layers = dict.fromkeys(job["config"]["deviations"].values())
    users = [layer for layer in layers if not layer.startswith("tuning ")]
    job |= {
        "kind": manifest["kind"],
        "peaks": [peak] if peak else [],
        "config": {**job["config"], "user_layers": users},
    }
    metrics = [_upgraded_metric(metric) for metric in content.get("metrics", ())]
    own = [quality["name"] for quality in manifest.get("qualities", ())]
    names = [*(name for name in METRICS if name not in own), *own, "target"]
    versions = dict.fromkeys(names, 1)
    return {**content, "job": job, "manifest": manifest, "metric_versions": versions, "metrics": metrics}


def _upgraded_metric(metric: dict[str, Any]) -> dict[str, Any]:
    interval = metric.get("interval")
    if not interval:
        return metric
    return {**metric, "interval": {**interval, "method": METHODS.get(interval["method"], interval["method"])}}


def upgraded_nodes(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**node, "missing_requirements": [{"requirement": text} for text in node.get("missing_requirements", ())]}
        for node in nodes
    ]


def with_messages(run: Run, observed: Observed) -> Run:
    """Add messages that a page can render in any language, where recomputing from the raw files gives the same
    reason."""
    versions = {metric.name: metric.version for metric in run.metrics}
    again = {metric.name: metric for metric in recompute_metrics(observed, versions)}
    return msgspec.structs.replace(run, metrics=tuple(_with_message(metric, again) for metric in run.metrics))


def _with_message(metric: Metric, again: dict[str, Metric]) -> Metric:
    made = again.get(metric.name)
    if made is None or (made.value, made.reason) != (metric.value, metric.reason):
        return metric
    return msgspec.structs.replace(metric, message=made.message)

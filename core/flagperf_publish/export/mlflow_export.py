"""Runs on an MLflow server: parameters, tags, metrics, curves with their steps, and the bundle as artefacts.

A run is found again by its id and the hash of its MANIFEST, so that exporting it again changes nothing. What an
interrupted export has left there lacks the last tag; it is deleted and written anew.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import itertools
import os
import re
import sys
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from flagperf.errors import BadInput, MissingPart, ToolFailed
from flagperf.report.wording import vendor_word
from flagperf.spec.values import flatten
from flagperf.text import pip_command
from flagperf_publish.export.run_lines import Exported, curve_lines

RUN_TAG, MANIFEST_TAG, COMPLETE_TAG = "flagperf.run", "flagperf.manifest_sha256", "flagperf.complete"
CURVES = {"loss": "curve/loss", "compute_seconds": "curve/compute_seconds", "period_seconds": "curve/period_seconds"}
"""Column of a step -> its metric, apart from the one value of the run, such as `loss`."""

_ENDED = {"succeeded": "FINISHED", "target_missed": "FINISHED", "interrupted": "KILLED"}
_METRICS_AT_ONCE, _PARAMS_AT_ONCE, _LONGEST = 1000, 100, 5000
"""Limits of the server's API, below them where they differ between versions."""


class Tracked(msgspec.Struct, frozen=True):
    run: str
    mlflow_run: str
    state: Literal["exported", "already there"]


class Tracking:
    """One server and one experiment. Raises BadInput for one that cannot be, ToolFailed for one that is away."""

    def __init__(self, uri: str, experiment: str) -> None:
        check_place(uri, experiment)
        self._mlflow, entities = _library()
        self._entities = entities
        self._uri = uri
        try:
            self._client = self._mlflow.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(experiment)
            if found is not None and found.lifecycle_stage != "active":
                raise BadInput(f"experiment {experiment!r} of {uri} is deleted; restore it, or name another")
            self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)
        except Exception as error:
            trouble = self._trouble(error)
            is_given = not _is_server(uri) or getattr(error, "error_code", "") == "INVALID_PARAMETER_VALUE"
            raise BadInput(str(trouble)) if isinstance(trouble, ToolFailed) and is_given else trouble from error

    def export(self, each: Exported) -> Tracked:
        assert each.is_finished
        try:
            with contextlib.redirect_stdout(sys.stderr):  # the library prints links
                return self._export(each)
        except Exception as error:
            raise self._trouble(error) from error

    def _export(self, each: Exported) -> Tracked:
        for found in self._earlier(each):
            if COMPLETE_TAG in found.data.tags:
                return Tracked(each.run.id, found.info.run_id, "already there")
            self._client.delete_run(found.info.run_id)
        began = _milliseconds(each.run.created)
        made = self._client.create_run(self._experiment, began, dict(_tags(each)), run_name=each.run.id)
        run_id = made.info.run_id
        for params in _batches(_params(each), _PARAMS_AT_ONCE):
            self._client.log_batch(run_id, params=[self._entities.Param(*param) for param in params])
        for metrics in _batches(_metrics(each, began), _METRICS_AT_ONCE):
            self._client.log_batch(run_id, metrics=[self._entities.Metric(*metric) for metric in metrics])
        self._client.log_artifacts(run_id, str(each.path), "bundle")
        assert each.run.ending is not None
        self._client.set_terminated(run_id, _ENDED.get(each.run.ending.status, "FAILED"), began + _length(each))
        self._client.set_tag(run_id, COMPLETE_TAG, "true")
        return Tracked(each.run.id, run_id, "exported")

    def _earlier(self, each: Exported) -> Sequence[Any]:
        wanted = {RUN_TAG: each.run.id, MANIFEST_TAG: each.manifest_sha256}
        where = " and ".join(f"tags.`{name}` = '{value}'" for name, value in wanted.items())
        found: Sequence[Any] = self._client.search_runs([self._experiment], filter_string=where)
        return found

    def _trouble(self, error: Exception) -> Exception:
        """What the library raises for a server that is away or refuses, with the server's name."""
        is_theirs = type(error).__module__.partition(".")[0] in ("mlflow", "requests", "urllib3")
        if not is_theirs:
            return error
        words = " ".join(str(error).split())[:500]
        return ToolFailed(f"cannot export to the MLflow server {self._uri}: {words}")


def check_place(uri: str, experiment: str) -> None:
    """Raises BadInput for what can be seen to be wrong without asking anybody."""
    try:
        parts = urllib.parse.urlsplit(uri)
        is_one = bool(parts.hostname) and parts.port != 0 if parts.scheme in ("http", "https") else bool(uri.strip())
    except ValueError:
        is_one = False
    if not is_one:
        raise BadInput(f"--tracking-uri {uri!r} is no address of an MLflow server; give one as http://localhost:5000")
    if not experiment.strip():
        raise BadInput("--experiment is empty; give the experiment a name, or leave the option out")


def _is_server(uri: str) -> bool:
    """Else it is a file, or of a scheme that the library may not know: what is wrong there is the address."""
    return urllib.parse.urlsplit(uri).scheme in ("http", "https", "databricks") or uri == "databricks"


def _library() -> tuple[Any, Any]:
    """Neither waits for minutes for a server that is away, nor tells its makers that it is used."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    try:
        return importlib.import_module("mlflow"), importlib.import_module("mlflow.entities")
    except ImportError:
        command = pip_command("install", "flagperf[mlflow]")
        raise MissingPart(f"exporting to MLflow needs its client: `{command}`") from None


# --- what is sent ---------------------------------------------------------------------------------------------------


def _tags(each: Exported) -> Iterator[tuple[str, str]]:
    run = each.run
    assert run.ending is not None
    yield RUN_TAG, run.id
    yield MANIFEST_TAG, each.manifest_sha256
    yield "flagperf.status", run.ending.status
    if run.ending.reason:
        yield "flagperf.reason", run.ending.reason[:_LONGEST]
    yield "flagperf.version", run.flagperf_version
    yield "flagperf.simulated", str(run.simulated).lower()
    yield "flagperf.redacted", str(run.redacted).lower()
    if each.labels.tags:
        yield "flagperf.tags", " ".join(each.labels.tags)[:_LONGEST]
    if each.labels.note:
        yield "mlflow.note.content", each.labels.note[:_LONGEST]
    for metric in run.metrics:
        about = {"unit": metric.unit, "reason": metric.reason or "", "marks": " ".join(metric.marks)}
        yield from ((f"flagperf.{name}.{_key(metric.name)}", text) for name, text in about.items() if text)


def _params(each: Exported) -> Iterator[tuple[str, str]]:
    run, job = each.run, each.run.job
    yield from {
        "case": job.case,
        "case_version": str(job.case_version),
        "profile": job.profile,
        "vendor": vendor_word(run),
        "adapter": job.adapter,
        "device": job.device_model.model,
        "shape": job.shape,
        "precision": job.precision.name,
    }.items()
    for key, value in flatten(job.config.values):
        yield _key(f"values.{key}"), msgspec.json.encode(value).decode()[:_LONGEST]


def _metrics(each: Exported, began: int) -> Iterator[tuple[str, float, int, int]]:
    """Name, value, time and step."""
    for metric in each.run.metrics:
        if metric.value is not None:
            yield _key(metric.name), float(metric.value), began, 0
    for line in curve_lines(each):
        for column, name in CURVES.items():
            if line[column] is not None:
                yield name, float(line[column]), began, line["step"]


def _length(each: Exported) -> int:
    e2e = each.run.metric("e2e_time")
    return round(e2e.value * 1000) if e2e is not None and e2e.value is not None else 0


def _key(name: str) -> str:
    """Names on the server have letters, digits and `_-. /`."""
    return re.sub(r"[^A-Za-z0-9_. /-]", "_", name)


def _milliseconds(created: str) -> int:
    return round(datetime.datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp() * 1000)


def _batches(items: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    left = iter(items)
    while batch := list(itertools.islice(left, size)):
        yield batch

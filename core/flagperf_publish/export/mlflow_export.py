"""Runs on an MLflow server: parameters, tags, metrics, curves with their steps, and the bundle as artefacts.

A run is found again by its id and the hash of its MANIFEST, so that exporting it again changes nothing. What an
interrupted export has left there lacks the last tag; it is deleted and written again.
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
from collections.abc import Iterable, Iterator
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
    """One server and one experiment. Raise BadInput for one that cannot be, ToolFailed for one that is away."""

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
            is_server = urllib.parse.urlsplit(uri).scheme in ("http", "https", "databricks") or uri == "databricks"
            # else it is a file, or of a scheme that the library may not know: what is wrong there is the address
            is_given = not is_server or getattr(error, "error_code", "") == "INVALID_PARAMETER_VALUE"
            raise BadInput(str(trouble)) if isinstance(trouble, ToolFailed) and is_given else trouble from error

    def export(self, each: Exported) -> Tracked:
        assert each.is_finished and each.run.ending is not None
        try:
            with contextlib.redirect_stdout(sys.stderr):  # the library prints links
                wanted = {RUN_TAG: each.run.id, MANIFEST_TAG: each.manifest_sha256}
                where = " and ".join(f"tags.`{name}` = '{value}'" for name, value in wanted.items())
                for found in self._client.search_runs([self._experiment], filter_string=where):
                    if COMPLETE_TAG in found.data.tags:
                        return Tracked(each.run.id, found.info.run_id, "already there")
                    self._client.delete_run(found.info.run_id)
                created = datetime.datetime.fromisoformat(each.run.created.replace("Z", "+00:00"))
                began = round(created.timestamp() * 1000)
                made = self._client.create_run(self._experiment, began, dict(_tags(each)), run_name=each.run.id)
                run_id = made.info.run_id
                for params in _batches(_params(each), _PARAMS_AT_ONCE):
                    self._client.log_batch(run_id, params=[self._entities.Param(*param) for param in params])
                for metrics in _batches(_metrics(each, began), _METRICS_AT_ONCE):
                    self._client.log_batch(run_id, metrics=[self._entities.Metric(*metric) for metric in metrics])
                self._client.log_artifacts(run_id, str(each.path), "bundle")
                e2e = each.run.metric("e2e_time")
                ended = began + (round(e2e.value * 1000) if e2e is not None and e2e.value is not None else 0)
                self._client.set_terminated(run_id, _ENDED.get(each.run.ending.status, "FAILED"), ended)
                self._client.set_tag(run_id, COMPLETE_TAG, "true")
                return Tracked(each.run.id, run_id, "exported")
        except Exception as error:
            raise self._trouble(error) from error

    def _trouble(self, error: Exception) -> Exception:
        """Name the server in what the library raises for one that is away or refuses."""
        if type(error).__module__.partition(".")[0] not in ("mlflow", "requests", "urllib3"):
            return error
        words = " ".join(str(error).split())[:500]
        return ToolFailed(f"cannot export to the MLflow server {self._uri}: {words}")


def check_place(uri: str, experiment: str) -> None:
    """Raise BadInput for what can be seen to be wrong without asking anybody."""
    try:
        parts = urllib.parse.urlsplit(uri)
        is_one = bool(parts.hostname) and parts.port != 0 if parts.scheme in ("http", "https") else bool(uri.strip())
    except ValueError:
        is_one = False
    if not is_one:
        raise BadInput(
            f"--tracking-uri {uri!r} is not an address of an MLflow server; give one as http://localhost:5000"
        )
    if not experiment.strip():
        raise BadInput("--experiment is empty; give the experiment a name, or leave the option out")


def _library() -> tuple[Any, Any]:
    """Import the client. It neither waits long for a server that is away nor tells its makers that it is used."""
    for name, value in (
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"),
        ("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1"),
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false"),
        ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"),
    ):
        os.environ.setdefault(name, value)
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


def _key(name: str) -> str:
    """Names on the server have letters, digits and `_-. /`."""
    return re.sub(r"[^A-Za-z0-9_. /-]", "_", name)


def _batches(items: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    left = iter(items)
    while batch := list(itertools.islice(left, size)):
        yield batch

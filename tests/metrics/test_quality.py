import math

import msgspec
import pytest
from metric_builders import (
    ACC,
    began,
    ended,
    make_job,
    make_manifest,
    metrics_of,
    rank_file,
    record_of,
    reported,
    step,
)

from flagperf.events import PartsReported
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf.spec.manifest import Quality, Target
from flagperf.spec.values import Resolved


def ranks(*losses_and_samples):
    """One rank per argument, each with one step per (loss, samples) pair."""
    files = []
    for rank, pairs in enumerate(losses_and_samples):
        steps = [step(n, n, n + 1, loss=loss, samples=samples) for n, (loss, samples) in enumerate(pairs, start=1)]
        files.append(rank_file(began(1), *steps, ended(9), rank=rank))
    return metrics_of(make_job([len(files)]), record_of(*files))


def reports(*events, manifest=None, job=None):
    return metrics_of(job or make_job(), record_of(rank_file(*events)), manifest)


# --- loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [None, math.nan, math.inf])
def test_a_last_step_without_a_loss_is_not_replaced_by_an_earlier_one(lost):
    metrics = ranks([(4.0, 1), (2.0, 1)], [(4.0, 1), (lost, 1)])
    assert (metrics["loss"].value, metrics["loss"].reason) == (None, "not_measured")
    assert metrics["loss"].detail == "step 2 has no finite loss on rank 1"
    assert metrics["loss_first"].value == 4.0


def test_a_rank_without_samples_has_no_say_in_the_loss():
    assert ranks([(2.0, 3)], [(None, 0)])["loss"].value == 2.0
    assert ranks([(2.0, 0)], [(None, 0)])["loss"].reason == "not_measured"


def test_a_quality_called_loss_takes_the_place_of_the_step_loss():
    manifest = make_manifest(qualities=(Quality("loss", "nats", "mean of epochs", format="loss"),), target=None)
    metrics = reports(began(0), step(1, 0, 1, loss=5.0), ended(1), reported(loss=1.5), manifest=manifest)
    assert (metrics["loss"].value, metrics["loss"].unit, metrics["loss"].definition) == (1.5, "nats", "quality")
    assert metrics["loss_first"].value == 5.0
    names = [metric.name for metric in compute_metrics(Observed(make_job(), manifest, record_of()))]
    assert names.count("loss") == 1
    assert names[-2:] == ["loss", "target"]


# --- qualities -----------------------------------------------------------------------------------------------------


def test_the_last_reported_value_counts():
    metric = reports(reported(3, acc=0.9), reported(6, acc=0.8), reported(7, other=1.0))["acc"]
    assert (metric.value, metric.unit, metric.definition) == (0.8, "share", "quality")
    assert metric.inputs == {"definition": "right / all", "step": 6}


def test_what_a_value_is_made_of_is_kept_with_it_the_last_of_each_division():
    events = [
        reported(acc=0.5),
        PartsReported(0, step=1, name="acc", by="subject", values={"law": 0.1}),
        PartsReported(0, step=2, name="acc", by="subject", values={"law": 0.4, "logic": 0.6}),
        PartsReported(0, step=2, name="acc", by="category", values={"all": 0.5}),
        PartsReported(0, step=2, name="f1", by="subject", values={"law": 0.9}),
    ]
    acc = metrics_of(make_job(), record_of(rank_file(*events)))["acc"]
    assert acc.value == 0.5
    assert acc.inputs["parts"] == {"subject": {"law": 0.4, "logic": 0.6}, "category": {"all": 0.5}}


def test_only_rank_0_reports():
    files = [rank_file(reported(acc=value), rank=rank) for rank, value in enumerate((0.8, 0.9))]
    assert metrics_of(make_job([2]), record_of(*reversed(files)))["acc"].value == 0.8


@pytest.mark.parametrize("value", [1.009, -0.1, math.nan, math.inf])
def test_a_value_outside_its_range_is_refused(value):
    metric = reports(reported(acc=value))["acc"]
    assert (metric.value, metric.reason) == (None, "invalid_telemetry")
    assert metric.detail == f"acc is {value}, not a number from 0 to 1"


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_ends_of_the_range_are_allowed(value):
    assert reports(reported(acc=value))["acc"].value == value


def test_a_quality_without_a_range():
    manifest = make_manifest(qualities=(Quality("ppl", "", "exp(loss)"),), target=None)
    assert reports(reported(ppl=1e9), manifest=manifest)["ppl"].value == 1e9
    assert reports(reported(ppl=math.inf), manifest=manifest)["ppl"].reason == "invalid_telemetry"


# --- target --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("acc", "reached"), [(0.76, 1), (0.75, 1), (0.74, 0)])
def test_target(acc, reached):
    metric = reports(reported(acc=acc))["target"]
    assert metric.value == reached
    assert metric.inputs == {"metric": "acc", "target": 0.75, "got": acc}


@pytest.mark.parametrize(("loss", "reached"), [(0.74, 1), (0.75, 1), (0.76, 0)])
def test_a_loss_has_to_fall_to_its_target(loss, reached):
    own = make_manifest(qualities=(Quality("nll", "nats", "mean", format="loss"),), target=Target("nll"))
    assert reports(reported(nll=loss), manifest=own)["target"].value == reached
    of_step = make_manifest(target=Target("loss"))
    events = began(0), step(1, 0, 1, loss=loss), ended(1)
    assert reports(*events, manifest=of_step)["target"].value == reached


def test_case_without_a_target():
    assert reports(manifest=make_manifest(target=None))["target"].reason == "not_applicable"


def test_target_without_a_value():
    metric = reports()["target"]
    assert (metric.value, metric.reason) == (None, "not_measured")
    assert metric.detail == "acc: the case did not report acc"


def test_target_of_a_metric_that_is_not_there():
    metric = reports(manifest=make_manifest(qualities=(ACC,), target=Target("f1")))["target"]
    assert metric.reason == "not_measured"


@pytest.mark.parametrize("values", [{}, {"evaluation": {"target": "high"}}, {"evaluation": {"target": True}}])
def test_target_without_a_number_in_the_configuration(values):
    job = msgspec.structs.replace(make_job(), config=Resolved(values, {}, {}))
    metric = reports(reported(acc=0.9), job=job)["target"]
    assert (metric.reason, metric.detail) == ("not_measured", "the configuration has no number at evaluation.target")

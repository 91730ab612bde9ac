"""Utilisation on a model of 6000 FLOPs per token (`exact`) and a peak of 1e6 FLOP/s."""

import msgspec
import pytest
from metric_builders import (
    MODEL,
    PEAK,
    began,
    ended,
    logged,
    make_job,
    make_manifest,
    metrics_of,
    rank_file,
    record_of,
    started,
    step,
    succeeded,
)

from flagperf.event_files import EventFile
from flagperf.events import ModelDescribed

MFU = ("mfu", "mfu_useful", "mfu_nominal-6n", "mfu_nominal-2n", "mfu_palm")


def run(job=None, manifest=None, model=MODEL, tokens=60, padded=20, mapping="uuid"):
    """One step: 1 s computed of 2 s of training, in a window of 4 s."""
    only = step(1, 0, 2, compute=1, wait=1, samples=1, tokens=tokens, padded_tokens=padded)
    events = [started(mapping=mapping), *([model] if model else []), began(0), only, logged(2, 4), ended(4)]
    return metrics_of(job or make_job(), record_of(EventFile((*events, succeeded()))), manifest)


def with_peak(**changes):
    return make_job(peaks=(msgspec.structs.replace(PEAK, **changes),))


def test_sample_cases_go_by_compute():
    """80 positions in 1 s: 80 x 6000 = 480,000 FLOP/s; useful 60 x 6000; by the others 80 x 5400, 1800, 7920."""
    metrics = run()
    assert metrics["tflops_per_device"].value == pytest.approx(480_000 / 1e12)
    assert [metrics[name].value for name in MFU] == pytest.approx([0.48, 0.36, 0.432, 0.144, 0.6336])


def test_token_cases_go_by_the_span_of_p_train():
    """The same in 2 s."""
    metrics = run(manifest=make_manifest(sample_unit="tokens/s", counts="tokens"))
    assert [metrics[name].value for name in MFU] == pytest.approx([0.24, 0.18, 0.216, 0.072, 0.3168])


def test_adapters_on_a_frozen_base():
    """Published figures of a 7B model: 4,017 tokens/s on a card of 312 TFLOP/s; pages count 2 x 7e9 FLOPs per token."""
    model = ModelDescribed(
        t_ns=0,
        parameters=6_738_415_616,
        matmul_parameters=6_607_077_376,
        layers=32,
        heads=32,
        head_size=128,
        sequence=512,
        causal=True,
        nominal_parameters=7_000_000_000,
        lora_parameters=4_194_304,
    )
    manifest = make_manifest(sample_unit="tokens/s", counts="tokens", mfu_formula="exact-lora")
    metrics = run(with_peak(value=312e12), manifest, model, tokens=8034, padded=0)
    assert metrics["token/p/s"].value == 4017
    assert metrics["mfu"].inputs["flops_per_token"] == 26_856_128_512
    assert metrics["mfu"].value == pytest.approx(0.3458, abs=1e-4)
    assert metrics["mfu_nominal-2n"].value * 312 / 156 == pytest.approx(0.3605, abs=1e-4)


def test_the_slowest_rank_sets_the_duration():
    """100 positions on two devices. Computing took 1 and 2 s: 25 per second and device; training 3 and 4 s: 12.5."""
    files = [
        rank_file(MODEL, began(0), step(1, 0, 3, compute=1.0 + rank, tokens=50), ended(3 + rank), rank=rank)
        for rank in (0, 1)
    ]
    record = record_of(*files)
    assert metrics_of(make_job([2]), record)["mfu"].value == pytest.approx(0.15)
    tokens = make_manifest(sample_unit="tokens/s", counts="tokens")
    assert metrics_of(make_job([2]), record, tokens)["mfu"].value == pytest.approx(0.075)


def test_everything_it_was_made_of_is_kept():
    inputs = run()["mfu"].inputs
    assert inputs == {
        "formula": "exact",
        "parameters": 1000,
        "matmul_parameters": 680,
        "nominal_parameters": 900,
        "lora_parameters": None,
        "layers": 1,
        "heads": 1,
        "head_size": 10,
        "sequence": 16,
        "causal": False,
        "flops_per_token": 6000,
        "tokens_per_second_per_device": 80.0,
        "peak": 1e6,
        "peak_model": "Card A",
        "peak_row": "fp16",
        "peak_source": "vendor manual, page 3",
        "peak_confidence": "high",
    }
    assert run()["mfu_palm"].inputs["formula"] == "palm"
    assert run()["mfu_useful"].inputs["tokens_per_second_per_device"] == 60.0


def test_unknown_peak_names_what_was_looked_for():
    metrics = run(make_job(peaks=()))
    for name in MFU:
        assert (metrics[name].value, metrics[name].reason) == (None, "unknown_peak")
        assert metrics[name].detail == "no peak is known for vendor acme, model Card A, precision row fp16"
        assert metrics[name].inputs["tokens_per_second_per_device"] > 0
    assert metrics["tflops_per_device"].value == pytest.approx(4.8e-7)


def test_unknown_peak_of_a_slice_says_that_it_is_one():
    job = make_job(peaks=())
    devices = tuple(msgspec.structs.replace(device, slice="half") for device in job.nodes[0].devices)
    sliced = msgspec.structs.replace(job, nodes=(msgspec.structs.replace(job.nodes[0], devices=devices),))
    assert run(sliced)["mfu"].detail == "no peak is known for vendor acme, model Card A (half), precision row fp16"


def test_confidence_of_the_peak():
    assert run()["mfu"].marks == ()
    assert run(with_peak(confidence="medium"))["mfu"].marks == ("medium_peak",)
    low = run(with_peak(confidence="low"))["mfu"]
    assert (low.value, low.reason, low.marks) == (None, "unknown_peak", ())
    assert "low confidence" in low.detail
    accepted = msgspec.structs.replace(with_peak(confidence="low"), accept_low_peaks=True)
    assert run(accepted)["mfu"].value == pytest.approx(0.48)
    assert run(accepted)["mfu"].marks == ("low_peak",)


def test_above_the_peak_is_refused():
    """480,000 FLOP/s on a card of 400,000; by `nominal-6n` 432,000; the share of real tokens goes with the headline."""
    metrics = run(with_peak(value=4e5))
    for name in ("mfu", "mfu_useful", "mfu_nominal-6n", "mfu_palm", "tflops_per_device"):
        assert (metrics[name].value, metrics[name].reason) == (None, "invalid_telemetry")
        assert metrics[name].detail.startswith("above the peak for this precision: ")
    assert metrics["mfu"].detail.endswith("4.8e-07 of 4e-07 TFLOP/s (Card A, fp16)")


def test_exactly_the_peak_is_allowed():
    assert run(with_peak(value=480_000.0))["mfu"].value == 1.0


def test_marks_of_the_run():
    job = make_job(oversubscribed=True)
    metrics = run(job, mapping="none")
    assert metrics["mfu"].marks == ("oversubscribed", "unverified_mapping")
    assert metrics["tflops_per_device"].marks == ("oversubscribed",)


def test_case_without_a_formula():
    metrics = run(manifest=make_manifest(mfu_formula=None))
    assert metrics["mfu"].reason == metrics["tflops_per_device"].reason == "not_applicable"
    assert metrics["mfu_palm"].value == pytest.approx(0.6336)


def test_unknown_formula_is_named():
    metric = run(manifest=make_manifest(mfu_formula="exakt"))["mfu"]
    assert metric.reason == "unsupported"
    assert "formula exakt;" in metric.detail and "exact-lora" in metric.detail


def test_adapters_of_unknown_size_are_not_taken_for_none():
    metrics = run(manifest=make_manifest(mfu_formula="exact-lora"))
    assert metrics["mfu"].reason == metrics["tflops_per_device"].reason == "not_measured"
    assert "adapters" in metrics["mfu"].detail


def test_undescribed_model():
    metrics = run(model=None)
    assert {metrics[name].reason for name in (*MFU, "tflops_per_device")} == {"not_measured"}


def test_ranks_that_describe_different_models():
    models = MODEL, msgspec.structs.replace(MODEL, layers=2)
    files = [
        rank_file(model, began(0), step(1, 0, 1, tokens=1), ended(1), rank=rank) for rank, model in enumerate(models)
    ]
    assert metrics_of(make_job([2]), record_of(*files))["mfu"].reason == "invalid_telemetry"


def test_only_padding_was_computed():
    metrics = run(tokens=0, padded=80)
    assert metrics["mfu"].value == pytest.approx(0.48)
    assert metrics["mfu_useful"].reason == "not_measured"


def test_a_measured_peak_is_said_and_so_is_its_confidence():
    assert "measured_peak" in run(with_peak(measured_by="r"))["mfu"].marks
    assert "medium_peak" not in run(with_peak(measured_by="r"))["mfu"].marks
    assert {"measured_peak", "medium_peak"} <= set(run(with_peak(measured_by="r", confidence="medium"))["mfu"].marks)

"""Throughputs of an inference case, from records that a person can check by hand."""

from metric_builders import (
    MODEL,
    began,
    ended,
    evaluated,
    make_job,
    make_manifest,
    metrics_of,
    record_of,
    started,
    step,
    succeeded,
    warm,
)

from flagperf.event_files import EventFile
from flagperf.spec.values import Resolved, nest

NAMES = ("p_val_whole", "p_val_core", "p_infer_whole", "p_infer_core", "p_infer_padded")


def figures(counts_of="tokens", **changes):
    """A warm-up batch, then two of 2 s each with 30 real tokens and 10 of padding; the window is 8 s long."""
    counts = {"samples": 3, "tokens": 30, "padded_tokens": 10}
    events = (
        MODEL,
        began(0, "inference"),
        step(1, 0, 2, **counts),
        warm(2, 1),
        step(2, 3, 5, **counts),
        step(3, 6, 8, **counts),
        evaluated(8, 9),
        ended(10, "inference"),
    )
    job = make_job(config=Resolved(nest({"inference.warmup_steps": 1}), {}, {}))
    start = started(framework={"torch": "2.6", "other": "1"})
    manifest = make_manifest(kind="inference", engine="own", sample_unit=f"{counts_of}/s", counts=counts_of, **changes)
    return metrics_of(job, record_of(EventFile((start, *events, succeeded()))), manifest)


def test_real_tokens_over_the_loop_and_over_computing():
    metrics = figures()
    assert metrics["p_infer_whole"].value == 60 / 8
    assert metrics["p_infer_core"].value == 60 / 4
    assert metrics["p_infer_padded"].value == 80 / 4
    assert {metrics[name].unit for name in NAMES} == {"tokens/s"}
    assert (metrics["steps_kept"].value, metrics["steps_dropped"].value) == (2, 1)


def test_cases_without_tokens_count_samples():
    metrics = figures("samples")
    assert metrics["p_infer_core"].value == 6 / 4
    assert metrics["p_infer_core"].unit == "samples/s"
    assert metrics["p_infer_padded"].reason == "not_applicable"


def test_engine_is_named_with_the_version_of_torch():
    assert figures()["p_infer_core"].inputs["engine"] == "own (torch 2.6)"


def test_no_figure_is_given_for_the_plain_framework():
    assert {figures()[name].reason for name in ("p_val_whole", "p_val_core")} == {"not_applicable"}


def test_mfu_is_of_computing_and_of_a_forward_pass():
    metrics = figures(mfu_formula="exact-infer")
    # 2 x 680 + 4 x 160 = 2000 FLOPs for each of 20 positions per second, of 1e6
    assert metrics["mfu"].value == 2000 * 20 / 1e6
    assert metrics["mfu_palm"].inputs["formula"] == "palm-infer"
    assert "mfu_nominal-6n" not in metrics and "loss" not in metrics

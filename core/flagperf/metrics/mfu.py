"""Model FLOPs per second and their share of the card's peak, with everything that the number was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flagperf.api import Peak
from flagperf.events import ModelDescribed
from flagperf.metrics.finding import Absent, Finding, Findings, Found
from flagperf.metrics.flops import FORMULAS, ModelFacts, utilisation
from flagperf.metrics.metric import Mark
from flagperf.metrics.ranks import RankRecord
from flagperf.metrics.throughput import SECOND_NS
from flagperf.metrics.training import NO_TRAINING
from flagperf.metrics.window import Window
from flagperf.spec import Job, Manifest

NAMES = ("tflops_per_device", "mfu", "mfu_useful", "mfu_nominal-6n", "mfu_nominal-2n", "mfu_palm")
TERA = 1e12


class Work(msgspec.Struct, frozen=True):
    """What one device computed per second, by one formula."""

    tokens_per_second: float
    flops_per_token: int
    inputs: dict[str, Any]

    @property
    def flops_per_second(self) -> float:
        return self.tokens_per_second * self.flops_per_token


def model_flops(job: Job, manifest: Manifest, ranks: Sequence[RankRecord], window: Window | Absent) -> Findings:
    if isinstance(window, Absent):
        return dict.fromkeys(NAMES, window)
    model = model_facts(ranks)
    is_inference = manifest.kind == "inference"
    seconds = (window.train_ns if counts_tokens(manifest) and not is_inference else window.core_ns) / SECOND_NS
    positions = window.positions / seconds / job.world_size
    tokens = window.tokens / seconds / job.world_size
    work = _work(manifest.mfu_formula, model, positions)
    headline = _share(job, work)
    useful = _share(job, _work(manifest.mfu_formula, model, tokens))
    return {
        "tflops_per_device": _tflops(headline, work),
        "mfu": headline,
        "mfu_useful": headline if isinstance(headline, Absent) else useful,
        "mfu_nominal-6n": NO_TRAINING if is_inference else _share(job, _work("nominal-6n", model, positions)),
        "mfu_nominal-2n": _share(job, _work("nominal-2n", model, positions)),
        "mfu_palm": _share(job, _work("palm-infer" if is_inference else "palm", model, positions)),
    }


def counts_tokens(manifest: Manifest) -> bool:
    """Cases whose throughput is in tokens publish by p_train's span, the others by p_core's."""
    return "token" in manifest.sample_unit


def model_facts(ranks: Sequence[RankRecord]) -> ModelFacts | Absent:
    described = [msgspec.structs.replace(model, t_ns=0) for record in ranks for model in record.models]
    if not described:
        return Absent("not_measured", "the worker did not describe its model")
    if any(model != described[0] for model in described):
        return Absent("invalid_telemetry", "the ranks describe different models")
    return _facts(described[0])


def _facts(model: ModelDescribed) -> ModelFacts:
    return ModelFacts(
        parameters=model.parameters,
        matmul_parameters=model.matmul_parameters,
        layers=model.layers,
        heads=model.heads,
        head_size=model.head_size,
        sequence=model.sequence,
        causal=model.causal,
        nominal_parameters=model.nominal_parameters,
        lora_parameters=model.lora_parameters,
    )


def _work(formula: str | None, model: ModelFacts | Absent, tokens_per_second: float) -> Work | Absent:
    if formula is None:
        return Absent("not_applicable", "the case declares no formula for its FLOPs")
    if formula not in FORMULAS:
        return Absent("unsupported", f"unknown formula {formula!r}; known: {', '.join(FORMULAS)}")
    if isinstance(model, Absent):
        return model
    if formula == "exact-lora" and model.lora_parameters is None:
        return Absent("not_measured", "the worker did not say how many parameters its adapters have")
    if not tokens_per_second:
        return Absent("not_measured", "the kept steps counted no tokens")
    flops = FORMULAS[formula](model)
    inputs = {
        "formula": formula,
        **msgspec.structs.asdict(model),
        "flops_per_token": flops,
        "tokens_per_second_per_device": tokens_per_second,
    }
    return Work(tokens_per_second, flops, inputs)


def _tflops(headline: Finding, work: Work | Absent) -> Finding:
    if isinstance(work, Absent):
        return work
    if isinstance(headline, Absent) and headline.reason == "invalid_telemetry":
        return headline
    return Found(work.flops_per_second / TERA, work.inputs)


def _share(job: Job, work: Work | Absent) -> Finding:
    if isinstance(work, Absent):
        return work
    peak = _peak(job)
    if isinstance(peak, Absent):
        return msgspec.structs.replace(peak, inputs={**work.inputs, **peak.inputs})
    inputs = {**work.inputs, **_peak_inputs(peak)}
    value = utilisation(work.tokens_per_second, work.flops_per_token, peak.value)
    if value > 1:
        figures = f"{work.flops_per_second / TERA:.4g} of {peak.value / TERA:.4g} TFLOP/s ({peak.model}, {peak.row})"
        return Absent("invalid_telemetry", f"above the peak for this precision: {figures}", inputs)
    return Found(value, inputs, marks=_peak_marks(peak))


def _peak(job: Job) -> Peak | Absent:
    device = job.device_model
    model = f"{device.model} ({device.slice})" if device.slice else device.model
    wanted = f"vendor {job.vendor}, model {model}, precision row {job.precision.peak_row}"
    if job.peak is None or job.peak.value <= 0:
        return Absent("unknown_peak", f"no peak is known for {wanted}")
    if job.peak.confidence == "low" and not job.accept_low_peaks:
        return Absent("unknown_peak", f"the peak for {wanted} is of low confidence", _peak_inputs(job.peak))
    return job.peak


def _peak_inputs(peak: Peak) -> dict[str, Any]:
    return {
        "peak": peak.value,
        "peak_model": peak.model,
        "peak_row": peak.row,
        "peak_source": peak.source,
        "peak_confidence": peak.confidence,
    }


def _peak_marks(peak: Peak) -> tuple[Mark, ...]:
    marks: dict[str, tuple[Mark, ...]] = {"high": (), "medium": ("medium_peak",), "low": ("low_peak",)}
    return marks[peak.confidence]

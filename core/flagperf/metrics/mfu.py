"""Model FLOPs per second and MFU, their share of the card's peak, with all inputs."""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf import units
from flagperf.api import Peak
from flagperf.kinds import Text
from flagperf.messages import message
from flagperf.metrics.entry import CARD, SPEED, Absent, Finding, Formula, Found, Mark, MetricEntry, absent
from flagperf.metrics.flops import FORMULAS, utilisation
from flagperf.metrics.observed import Observed
from flagperf.spec.job import Job
from flagperf.units import SECOND_NS

TERA = 1e12


class Work(msgspec.Struct, frozen=True):
    """Model FLOPs per second of one device, by one formula."""

    tokens_per_second: float
    flops_per_token: int
    inputs: dict[str, Any]

    @property
    def flops_per_second(self) -> float:
        return self.tokens_per_second * self.flops_per_token


def tflops_per_device(run: Observed) -> Finding:
    work = model_work(run, run.manifest.mfu_formula)
    if isinstance(work, Absent):
        return work
    share = peak_share(run.job, work)
    if isinstance(share, Absent) and share.reason == "invalid_telemetry":
        return share
    return Found(work.flops_per_second / TERA, work.inputs)


def mfu(run: Observed) -> Finding:
    return peak_share(run.job, model_work(run, run.manifest.mfu_formula))


def mfu_useful(run: Observed) -> Finding:
    """Return MFU without padding."""
    headline = mfu(run)
    if isinstance(headline, Absent):
        return headline
    return peak_share(run.job, model_work(run, run.manifest.mfu_formula, with_padding=False))


def mfu_by(name: str) -> Formula:
    """Return MFU by another formula, for comparison with published figures. The kind of the case names the formula."""
    return lambda run: peak_share(run.job, model_work(run, run.kind.mfu_formulas[name]))


def model_work(run: Observed, formula: str | None, *, with_padding: bool = True) -> Work | Absent:
    """Return the FLOPs of the tokens, or positions, that one device computes in a second. The kind decides the
    duration: in training, cases that count tokens use that of p_train, others that of p_core."""
    window, model = run.window, run.model
    if isinstance(window, Absent):
        return window
    if formula is None:
        return absent("not_applicable", "flops.no_formula")
    if formula not in FORMULAS:
        return absent("unsupported", "flops.unknown_formula", formula=formula, known=list(FORMULAS))
    if isinstance(model, Absent):
        return model
    if formula == "exact-lora" and model.lora_parameters is None:
        return absent("not_measured", "flops.no_adapters")
    tokens = sum(window.positions if with_padding else window.tokens)
    if not tokens:
        return absent("not_measured", "flops.no_tokens")
    is_core = run.kind.mfu_duration[run.manifest.counts] == "core"
    seconds = max(window.core_ns if is_core else window.train_ns) / SECOND_NS
    tokens_per_second, flops = tokens / seconds / run.job.world_size, FORMULAS[formula](model)
    inputs = {
        "formula": formula,
        **msgspec.structs.asdict(model),
        "flops_per_token": flops,
        "tokens_per_second_per_device": tokens_per_second,
    }
    return Work(tokens_per_second, flops, inputs)


def peak_share(job: Job, work: Work | Absent) -> Finding:
    if isinstance(work, Absent):
        return work
    peak = usable_peak(job)
    if isinstance(peak, Absent):
        return msgspec.structs.replace(peak, inputs={**work.inputs, **peak.inputs})
    inputs = {**work.inputs, **_peak_inputs(peak)}
    value = utilisation(work.tokens_per_second, work.flops_per_token, peak.value)
    if value > 1:
        figures = f"{work.flops_per_second / TERA:.4g} of {peak.value / TERA:.4g} TFLOP/s ({peak.model}, {peak.row})"
        return Absent("invalid_telemetry", message("flops.above_peak", figures=figures), inputs)
    return Found(value, inputs, marks=peak_marks(peak))


def usable_peak(job: Job) -> Peak | Absent:
    device = job.device_model
    model = f"{device.model} ({device.slice})" if device.slice else device.model
    wanted = message("flops.wanted_peak", vendor=job.vendor, model=model, row=job.precision.peak_row)
    if job.peak is None or job.peak.value <= 0:
        return absent("unknown_peak", "flops.no_peak", wanted=wanted)
    if job.peak.confidence == "low" and not job.accept_low_peaks:
        return Absent("unknown_peak", message("flops.low_peak", wanted=wanted), _peak_inputs(job.peak))
    return job.peak


def _peak_inputs(peak: Peak) -> dict[str, Any]:
    return {
        "peak": peak.value,
        "peak_model": peak.model,
        "peak_row": peak.row,
        "peak_source": peak.source,
        "peak_confidence": peak.confidence,
    }


def peak_marks(peak: Peak) -> tuple[Mark, ...]:
    """The caveats of what is divided by it."""
    marks: dict[str, tuple[Mark, ...]] = {"high": (), "medium": ("medium_peak",), "low": ("low_peak",)}
    measured: tuple[Mark, ...] = ("measured_peak",) if peak.measured_by else ()
    return (*measured, *marks[peak.confidence])


def _mfu_entry(
    name: str, formula: Formula, title: Text, remark: Text, head: str = "", group: str = "flops"
) -> MetricEntry:
    return MetricEntry(
        name=name,
        unit="share",
        group=group,
        scope="device",
        formula=formula,
        format=units.percent,
        marks=SPEED + CARD,
        better="higher",
        title=title,
        remark=remark,
        head=head,
    )


def _by_formula_entry(name: str, group: str = "flops") -> MetricEntry:
    formula = name.removeprefix("mfu_")
    return _mfu_entry(
        name,
        mfu_by(name),
        {"en": f"MFU by formula {formula}", "zh": f"计算使用率（公式{formula}）"},
        {"en": "for comparison with figures of that formula only", "zh": "只可与同一公式的数值比较"},
        group=group,
    )


METRICS = (
    MetricEntry(
        name="tflops_per_device",
        unit="TFLOP/s",
        group="flops",
        scope="device",
        formula=tflops_per_device,
        format=units.four_digits,
        shown_unit="TFLOP/s",
        marks=SPEED,
        better="faster",
        title={"en": "Model TFLOP/s per device", "zh": "每卡模型算力"},
        remark={"en": "formula {formula}, TFLOP/s", "zh": "公式{formula}，单位TFLOP/s"},
    ),
    _mfu_entry(
        "mfu",
        mfu,
        {"en": "MFU", "zh": "计算使用率"},
        {
            "en": "formula {formula}; N, peak and the peak's source are in the notes",
            "zh": "公式{formula}，N、峰值及其来源见注",
        },
        head="MFU",
    ),
    _mfu_entry(
        "mfu_useful",
        mfu_useful,
        {"en": "MFU of real tokens", "zh": "计算使用率（只计真实token）"},
        {"en": "without padding and repeats", "zh": "不含填充与重复"},
    ),
    _by_formula_entry("mfu_nominal-6n", "training_flops"),
    _by_formula_entry("mfu_nominal-2n"),
    _by_formula_entry("mfu_palm"),
)

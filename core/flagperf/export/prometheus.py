"""The newest finished run of each configuration as a page of Prometheus metrics: for node_exporter's textfile
collector, or as OpenMetrics.

A metric is a gauge in base units, and its unit is the end of its name. Labels say what was run. The id of the run is
none of them, because every new run would begin new series: it is in `flagperf_run_info`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from flagperf.export.recorded import Exported
from flagperf.metrics.registry import entry_of
from flagperf.report.sections.naming import vendor_word
from flagperf.store.run import Run

Form = Literal["prometheus", "openmetrics"]

_UNITS: dict[str, tuple[str, float]] = {
    "s": ("seconds", 1), "us": ("seconds", 1e-6), "bytes": ("bytes", 1), "GiB": ("bytes", 1 << 30),
    "GB/s": ("bytes_per_second", 1e9), "share": ("ratio", 1), "ratio": ("ratio", 1), "fraction": ("ratio", 1),
    "W": ("watts", 1), "J": ("joules", 1), "J/sample": ("joules_per_sample", 1), "J/token": ("joules_per_token", 1),
    "°C": ("celsius", 1), "MHz": ("hertz", 1e6), "TFLOP/s": ("flops_per_second", 1e12), "": ("", 1),
    "TFLOPS": ("flops_per_second", 1e12), "TOPS": ("operations_per_second", 1e12),
}  # fmt: skip
"""Unit of a metric -> its base unit by the conventions of Prometheus, and how many of those it is."""


class Family(msgspec.Struct, frozen=True):
    """All samples of one name."""

    name: str
    unit: str
    help: str
    kind: Literal["gauge", "info"]
    samples: tuple[tuple[dict[str, str], float], ...]
    """Labels and value."""


def to_page(runs: Iterable[Exported], form: Form) -> str:
    lines = [line for family in _families(newest(runs)) for line in _lines(family, form)]
    return "".join(f"{line}\n" for line in [*lines, *(["# EOF"] if form == "openmetrics" else [])])


def newest(runs: Iterable[Exported]) -> list[Run]:
    """Of each case, profile, vendor, card, shape and precision the newest run that has ended. A copy that has ratios in
    place of values would hide the run itself."""
    found: dict[tuple[str, ...], Run] = {}
    for run in sorted((each.run for each in runs), key=lambda run: (run.created, run.id)):
        if run.ending is not None and run.redacted != "ratios":
            found[tuple(_labels(run).values())] = run
    return [found[key] for key in sorted(found)]


def _labels(run: Run) -> dict[str, str]:
    job = run.job
    return {
        "case": job.case,
        "profile": job.profile,
        "vendor": vendor_word(run),
        "device": job.device_model.model,
        "shape": job.shape,
        "precision": job.precision.name,
    }


def _families(runs: Sequence[Run]) -> Iterator[Family]:
    about = [({**_labels(run), **_identity(run)}, 1.0) for run in runs]
    yield Family("flagperf_run", "", "What the newest finished run of a configuration is", "info", tuple(about))
    ended = [(_labels(run), float(run.ending is not None and run.ending.status == "succeeded")) for run in runs]
    yield Family("flagperf_run_succeeded", "", "1 if that run succeeded", "gauge", tuple(ended))
    began = [(_labels(run), _timestamp(run.created)) for run in runs]
    yield Family("flagperf_run_created_timestamp_seconds", "seconds", "When that run began", "gauge", tuple(began))
    yield from _metric_families(runs)


def _identity(run: Run) -> dict[str, str]:
    status = run.ending.status if run.ending else ""
    return {"run": run.id, "status": status, "flagperf_version": run.flagperf_version, "redacted": run.redacted}


def _metric_families(runs: Sequence[Run]) -> Iterator[Family]:
    found: dict[str, tuple[str, str, list[tuple[dict[str, str], float]]]] = {}
    for run in runs:
        for metric in run.metrics:
            if metric.value is None:
                continue
            unit, scale = _UNITS.get(metric.unit, (_word(metric.unit.replace("/s", "_per_second")), 1))
            name, entry = _name(metric.name, unit), entry_of(run.manifest, metric.name)
            title = entry.title.get("en", metric.name) if entry else metric.name
            *_, samples = found.setdefault(name, (unit, f"{title} ({metric.name})", []))
            value = metric.value * scale if scale != 1 else metric.value
            samples.append(({**_labels(run), "marks": " ".join(metric.marks)}, float(value)))
    for name in sorted(found):
        unit, about, samples = found[name]
        yield Family(name, unit, about, "gauge", tuple(samples))


def _name(metric: str, unit: str) -> str:
    word = _word(metric)
    return f"flagperf_{word}" if not unit or word.endswith(f"_{unit}") else f"flagperf_{word}_{unit}"


def _word(text: str) -> str:
    return re.sub(r"_+", "_", re.sub(r"[^a-zA-Z0-9_]", "_", text)).strip("_").lower()


def _timestamp(created: str) -> float:
    try:
        return datetime.datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


# --- as text --------------------------------------------------------------------------------------------------------


def _lines(family: Family, form: Form) -> Iterator[str]:
    is_info = family.kind == "info"
    sample = f"{family.name}_info" if is_info else family.name
    name = family.name if form == "openmetrics" else sample
    yield f"# HELP {name} {_escaped(family.help)}"
    yield f"# TYPE {name} {family.kind if form == 'openmetrics' else 'gauge'}"
    if form == "openmetrics" and family.unit:
        yield f"# UNIT {name} {family.unit}"
    for labels, value in family.samples:
        yield f"{sample}{{{_label_text(labels)}}} {value!r}"


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

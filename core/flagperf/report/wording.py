"""Names, cells and sentences about runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import Lang, choose, clauses, explain, has_text, listed, message, say, template, usable, words
from flagperf.metrics.entry import Metric, MetricEntry
from flagperf.metrics.registry import entry_of
from flagperf.report.document import NOTHING, Empty, Value
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import flatten, page_name
from flagperf.stats import Interval

# Display names of runs, devices and configurations, the same in all reports.

_NUMERALS_ZH = {1: "单", 2: "两", 3: "三", 4: "四", 5: "五", 6: "六", 7: "七", 8: "八", 9: "九", 10: "十"}
"""How published pages write the number of nodes."""


def vendor_word(run: Run) -> str:
    return _simulated(run, run.job.vendor)


def vendor_title(run: Run, lang: Lang) -> str:
    """Return the vendor's name for a heading."""
    return _simulated(run, choose(run.job.vendor_title, lang) or run.job.vendor)


def vendor_and_device(vendor: str, device: str) -> str:
    """Return `vendor device`, or one word if both names are the same."""
    return device if vendor.lower() == device.lower() else f"{vendor} {device}"


def configuration(device: str, num_nodes: int, devices_per_node: int, lang: Lang) -> str:
    num_devices = num_nodes * devices_per_node
    shape = f"{num_nodes}x{devices_per_node}"
    if lang == "zh":
        nodes = f"{_NUMERALS_ZH.get(num_nodes, num_nodes)}机"
        devices = "单卡" if num_devices == 1 else f"{num_devices}卡"
        return f"{device}{nodes}{devices}（{shape}）"
    return f"{device}, {_plural(num_nodes, 'node')}, {_plural(num_devices, 'device')} ({shape})"


def run_configuration(run: Run, lang: Lang) -> str:
    job = run.job
    device = job.device_model.short_name
    if run.simulated:
        device = vendor_and_device(vendor_word(run), device)
    return configuration(device, len(job.nodes), job.devices_per_node, lang)


def short_configuration(run: Run) -> str:
    return f"{vendor_and_device(vendor_word(run), run.job.device_model.short_name)} {run.job.shape}"


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return for each id its shortest prefix of whole words that is unique among `ids`. Commands accept prefixes."""
    found = dict.fromkeys(ids, "")
    for run_id in found:
        parts = run_id.split("-")
        prefixes = ("-".join(parts[:count]) for count in range(1, len(parts)))
        found[run_id] = next((each for each in prefixes if sum(other.startswith(each) for other in found) == 1), run_id)
    return found


def overrides(run: Run) -> str:
    """Return the changes from the standard configuration, with the key names of published pages: `bs=96, lr=1.5e-4`.
    Leave out values with a column of their own: the precision, and the layout if the page has that column."""
    columns = run.manifest.page.columns
    shown = {"precision", *(_LAYOUT_KEYS if "parallel" in columns else ())}
    return ", ".join(change for key, change in _changes(run).items() if key not in shown)


_LAYOUT_KEYS = ("parallel.tp", "parallel.pp", "parallel.dp")


def layout_ways(run: Run) -> tuple[int, int, int]:
    """Return the tensor, pipeline and data parallel degree. A case without these keys is data parallel."""
    values = dict(flatten(run.job.config.values))
    tensor, pipeline = (max(1, int(values.get(key, 1))) for key in _LAYOUT_KEYS[:2])
    return tensor, pipeline, run.job.world_size // (tensor * pipeline)


def layout(run: Run) -> str:
    return "".join(f"{name}{ways}" for name, ways in zip(("TP", "PP", "DP"), layout_ways(run), strict=True))


def is_published(run: Run) -> bool:
    """Return True for the configuration of the published results: their profile, with no value changed except by a
    vendor's tuning."""
    return has_published_profile(run) and not run.job.config.user_deviations


def has_published_profile(run: Run) -> bool:
    profile = run.manifest.profiles.get(run.job.profile)
    return profile is not None and profile.published


def is_beside_published(run: Run, asked: bool | None) -> bool:
    """Tell whether published results stand beside a run: as the user `asked`, else only beside a published profile."""
    return has_published_profile(run) if asked is None else asked


def _changes(run: Run) -> dict[str, str]:
    values = dict(flatten(run.job.config.values))
    return {key: f"{page_name(run.manifest, key)}={units.setting(values[key])}" for key in run.job.config.deviations}


def _simulated(run: Run, word: str) -> str:
    return f"{word} (simulated)" if run.simulated else word


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def of_measured_peak(title: str, marks: Iterable[Collection[str]], lang: Lang) -> str:
    """Add to the title of values with these marks that all of them are relative to a peak that was measured."""
    found = list(marks)
    is_measured = bool(found) and all("measured_peak" in each for each in found)
    return say("of_measured_peak", lang, title=title) if is_measured else title


def marks_in(runs: Iterable[Run], name: str) -> Iterator[Collection[str]]:
    """Give the marks of the metric in each run that has a value of it."""
    metrics = (run.metric(name) for run in runs)
    return (metric.marks for metric in metrics if metric is not None and metric.value is not None)


# Table cells for recorded runs: a metric, the memory, a failure.

Formatter = Callable[[float], str]


def metric_cell(run: Run, name: str, form: Formatter) -> Value | Empty:
    """Return a metric, or the failure if the run has no results."""
    return measured_cell(run, name, form) if run.has_results else failure_cell(run)


def measured_cell(run: Run, name: str, form: Formatter, unit: str = "") -> Value | Empty:
    """Return a metric if it was measured, however the run ended."""
    metric = run.metric(name)
    if metric is None:
        return Empty("not_measured", name)
    if metric.value is None:
        return Empty(metric.reason or "not_measured", usable(metric.message, metric.detail))
    return Value(form(metric.value), unit, metric.marks)


def memory_cell(run: Run, unit: str = "") -> Value | Empty:
    return joined([measured_cell(run, name, units.gib) for name in ("mem_used", "mem_total")], "/", unit)


def joined(cells: Sequence[Value | Empty], separator: str, unit: str = "") -> Value | Empty:
    """Join several values in one cell. It is empty if one of them is."""
    values = []
    for cell in cells:
        if isinstance(cell, Empty):
            return cell
        values.append(cell)
    marks = dict.fromkeys(mark for value in values for mark in value.marks)
    return Value(separator.join(value.text for value in values), unit, tuple(marks))


def failure_cell(run: Run) -> Empty:
    """Return the cell of a run without results. What it measured before it failed is not a result."""
    if run.ending is None:
        return Empty("not_measured", message("page.no_ending"))
    code = "unsupported" if run.ending.status == "unsupported" else "run_failed"
    why = usable(run.ending.message, run.ending.reason)
    return Empty(code, message("page.ended", status=run.ending.status, why=why) if why else run.ending.status)


# Sentences about one run, shared by its card and the notes of a page.


def profile_sentence(run: Run, lang: Lang) -> str:
    """Say if this is the published configuration, and name every changed value."""
    changed = changes_sentence(run, lang)
    return clauses([profile_verdict(run, lang), changed and say("changed", lang, changes=changed)], lang)


def profile_verdict(run: Run, lang: Lang) -> str:
    name = "profile_published" if is_published(run) else "profile_other"
    if has_published_profile(run) and not is_published(run):
        name = "profile_changed"
    return say(name, lang, profile=run.job.profile)


def changes_sentence(run: Run, lang: Lang) -> str:
    """Return `bs=96 (tuning acme), lr=1.5e-4 (--set)`: every change from the profile, including the precision."""
    by_layer: dict[str, list[str]] = {}
    changes = _changes(run)
    for key, layer in run.job.config.deviations.items():
        by_layer.setdefault(layer, []).append(say("change", lang, change=changes[key], layer=layer))
    return listed([each for of_layer in by_layer.values() for each in of_layer], lang)


def evaluated_sentence(run: Run, name: str, lang: Lang) -> str:
    """Say how many rows a quality was evaluated on. Empty if the case did not report it."""
    rows = evaluated_rows(run, name)
    return say("evaluated", lang, name=name, rows=rows) if rows else ""


def evaluated_rows(run: Run, name: str) -> str:
    metric = run.metric(name)
    if metric is None or metric.value is None or "evaluated" not in metric.inputs:
        return ""
    return units.count(metric.inputs["evaluated"])


def target_sentence(run: Run, lang: Lang) -> str:
    metric = run.metric("target")
    if metric is None or metric.value is None:
        if run.manifest.target is None:
            return say("target_none", lang)
        reason = metric.reason if metric and metric.reason else "not_measured"
        detail = usable(metric.message, metric.detail) if metric else ""
        return say("target_unknown", lang, why=explain(reason, lang, detail))
    name = str(metric.inputs.get("metric", run.manifest.target.metric if run.manifest.target else ""))
    form = metric_format(run.manifest, name)
    target, got = (optional(metric.inputs.get(key), form) for key in ("target", "got"))
    if target == got and not metric.value:
        got = str(metric.inputs["got"])  # not rounded: rounding could hide why it was missed
    return say("target_reached" if metric.value else "target_missed", lang, metric=name, target=target, got=got)


def beside_memory(run: Run, lang: Lang) -> list[str]:
    """Say what the card's memory held before the workers started, and what their allocator does not account for."""
    baseline, allocator, remainder = (run.metric(f"mem_{name}") for name in ("baseline", "allocator", "remainder"))
    found = []
    if baseline is not None and baseline.value is not None:
        found.append(say("memory_baseline", lang, baseline=units.gib(baseline.value)))
    if allocator is not None and allocator.value is not None and remainder is not None and remainder.value is not None:
        amounts = {"allocator": units.gib(allocator.value), "remainder": units.gib(remainder.value)}
        found.append(say("memory_allocator", lang, device=allocator.inputs.get("device_id", NOTHING), **amounts))
    return found


def peak_time(run: Run, lang: Lang) -> str:
    """Say when memory use peaked, as the end of a sentence that names the device."""
    used = run.metric("mem_used")
    seconds = used.inputs.get("peak_seconds") if used else None
    if seconds is None:
        return ""
    side = "after" if seconds >= 0 else "before"
    loop = choose(KINDS[run.manifest.kind].loop, lang)
    return say(f"peak_{side}", lang, loop=loop, seconds=units.one_decimal(abs(seconds)))


def interval_sentence(metric: Metric, form: Formatter, lang: Lang) -> str:
    return say("interval", lang, name=metric.name, range=interval_range(metric, form, lang))


def interval_range(metric: Metric, form: Formatter, lang: Lang) -> str:
    """Return `820.7 to 1156.8 (95 %, batch means)`. Empty without an interval."""
    if metric.interval is None:
        return ""
    low, high = form(metric.interval.low), form(metric.interval.high)
    return say("interval_range", lang, low=low, high=high, method=interval_method(metric.interval, lang))


def interval_method(interval: Interval, lang: Lang) -> str:
    code = f"interval.{interval.method}"
    return template(code, lang) if has_text(code) else interval.method


def metric_sentence(run: Run, entry: MetricEntry, lang: Lang) -> str:
    """Return `Mean power: 312.4 W`. Empty without a value."""
    metric = run.metric(entry.name)
    if metric is None or metric.value is None:
        return ""
    value = f"{entry.format(metric.value)} {shown_unit(run, entry)}".rstrip()
    return say("metric", lang, title=choose(entry.title, lang), value=value)


def shown_unit(run: Run, entry: MetricEntry) -> str:
    unit = entry.shown_unit or entry.unit_of(run.manifest)
    return "" if unit == "share" else unit


def with_unit(entry: MetricEntry, value: float, unit: str) -> str:
    """Return `312.4 W`. `unit` is that of the recorded value; a share has none."""
    shown = entry.shown_unit or unit
    return entry.format(value) if shown in ("", "share", "fraction") else f"{entry.format(value)} {shown}"


def mfu_name(run: Run, lang: Lang) -> str:
    return of_measured_peak("MFU", marks_in([run], "mfu"), lang)


def mfu_sentence(run: Run, lang: Lang) -> str:
    """Say formula, N and peak. Empty without an MFU."""
    return clauses([mfu_formula(run, lang), mfu_peak(run, lang)], lang)


def mfu_formula(run: Run, lang: Lang) -> str:
    metric = run.metric("mfu")
    if metric is None or metric.value is None:
        return ""
    return say(
        "mfu",
        lang,
        name=mfu_name(run, lang),
        formula=metric.inputs.get("formula", NOTHING),
        parameters=optional(metric.inputs.get("parameters"), units.count),
        matmul=optional(metric.inputs.get("matmul_parameters"), units.count),
    )


def mfu_peak(run: Run, lang: Lang) -> str:
    """Say which peak MFU is relative to, and its source."""
    metric, peak = run.metric("mfu"), run.job.peak
    if metric is None or metric.value is None or peak is None:
        return ""
    value = units.teraflops(peak.value)
    return say("mfu_peak", lang, peak=value, row=peak.row, source=peak.source, confidence=peak.confidence)


def optional(value: float | None, form: Formatter) -> str:
    return NOTHING if value is None else form(value)


def card_problems(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Report broken cards beside those of the run: what keeps one from being used may slow the others down."""
    for node in recorded.nodes:
        for device in node.broken_devices(recorded.run.job.vendor):
            yield say("card_problem", lang, device=device.id, host=node.host, problem=device.problem)


def doubts(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Report what rules of plausibility found, with their ids."""
    for doubt in recorded.doubts:
        yield say("doubt", lang, rule=doubt.rule, seen=words(doubt.message, lang))


def recorded_operators(recorded: RecordedRun, lang: Lang) -> Iterator[str]:
    """Report what came of --record-operators."""
    found = recorded.run.recorded
    if found is None:
        return
    if found.steps:
        yield say("recorded", lang, steps=found.steps, calls=found.num_calls, different=found.num_different)
    if found.problem is not None:
        yield words(usable(found.problem, found.problem.code), lang)


def verdict_word(aligned: float) -> str:
    """Return `True` or `False`, as on published pages."""
    return str(bool(aligned))


def metric_format(manifest: Manifest, name: str) -> Formatter:
    entry = entry_of(manifest, name)
    return entry.format if entry else units.setting

"""What a terminal shows: one run in full (`summary`), or several as a table (`summary_table`)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf import units
from flagperf.metrics import LOSS_ALIGNED
from flagperf.report.alignment import verdict_sentence
from flagperf.report.cells import EMPTY, Cell, empty, explanations, has_results, joined, measured_cell, memory_cell
from flagperf.report.codes import DETAILS
from flagperf.report.columns import QUALITY_FORMATS, Column, columns
from flagperf.report.run_notes import (
    beside_memory,
    evaluated_sentence,
    mfu_sentence,
    peak_time,
    profile_sentence,
    target_sentence,
)
from flagperf.report.table import Table
from flagperf.report.texts import explain, meaning, say
from flagperf.report.words import is_published, overrides, vendor_and_device, vendor_word
from flagperf.spec import Manifest, Quality
from flagperf.store.run import RecordedRun, Run

NOT_AVAILABLE = "n/a"


class SummaryRow(msgspec.Struct, frozen=True):
    label: str
    value: str
    note: str = ""
    marks: tuple[str, ...] = ()


class Summary(msgspec.Struct, frozen=True):
    title: str
    rows: tuple[SummaryRow, ...]
    references: Table


class RunTable(msgspec.Struct, frozen=True):
    runs: Table
    notes: tuple[str, ...]
    """What has to be known of a run before its row is compared with another."""
    references: Table


def summary(recorded: RecordedRun) -> Summary:
    """A run that did not succeed shows what it measured until then, without rows for what it did not."""
    run = recorded.run
    rows = [_status(run), *_times(run), *_qualities(run), *_details(run)]
    if not has_results(run):
        rows = [row for row in rows if row.value != NOT_AVAILABLE]
    return Summary(_title(run), (*rows, *_meanings(rows)), published_table(run.manifest))


def _meanings(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Of every mark once, below the values that have it."""
    marks = dict.fromkeys(mark for row in rows for mark in row.marks)
    return [SummaryRow(mark, "", meaning(mark, "en")) for mark in marks]


def published_table(manifest: Manifest) -> Table:
    """What is published of a case; without rows where nothing is."""
    return _references([manifest], columns(manifest))


def summary_table(runs: Sequence[RecordedRun]) -> RunTable:
    """Runs as rows, in the order given; the columns are those of their cases' pages. Where a page has `/`, a run
    has the reason code here."""
    found = [recorded.run for recorded in runs]
    shown = tuple({column.name: column for run in found for column in columns(run.manifest)}.values())
    head = ("run", "status", "vendor", *(column.title("en") for column in shown))
    notes = tuple(f"{run.id}: {text}" for run in found for text in (_caution(run), _verdict(run)) if text)
    manifests = tuple({(run.manifest.name, run.manifest.version): run.manifest for run in found}.values())
    return RunTable(Table(head, tuple(_table_row(run, shown) for run in found)), notes, _references(manifests, shown))


def _table_row(run: Run, shown: Sequence[Column]) -> tuple[str, ...]:
    own = {column.name: column for column in columns(run.manifest)}
    cells = [own[each.name].of_run(run, "en") if each.name in own else empty("not_applicable") for each in shown]
    return (run.id, _status_word(run), vendor_word(run), *map(_plain, cells))


def _references(manifests: Sequence[Manifest], shown: tuple[Column, ...]) -> Table:
    """As narrow as it gets: no column and no row that is empty throughout. Sources are on pages and in case.toml."""
    found = [reference for manifest in manifests for reference in manifest.references if reference.values]
    columns = {
        column.title("en"): [_plain(column.of_reference(reference, "en")) for reference in found]
        for column in shown
        if column.name != "configuration"
    }
    filled = {title: cells for title, cells in columns.items() if any(cell != EMPTY for cell in cells)}
    names = [f"{each.vendor} {each.device} {each.nodes}x{each.devices_per_node}" for each in found]
    return Table(("published", *filled), tuple(zip(names, *filled.values(), strict=True)))


def _plain(cell: Cell) -> str:
    if cell.reason:
        return EMPTY if cell.reason == "unpublished" else cell.reason
    return f"{cell.text} ({', '.join(cell.marks)})" if cell.marks else cell.text


def _title(run: Run) -> str:
    job = run.job
    device = vendor_and_device(vendor_word(run), job.device_model.short_name)
    parts = [f"{job.case} {job.case_version}", f"profile {job.profile}", device, job.shape, job.precision.name]
    return ", ".join([*parts, *filter(None, [overrides(run)])])


def _status(run: Run) -> SummaryRow:
    reason = run.ending.reason if run.ending else DETAILS["no_ending"]["en"]
    return SummaryRow("run", _status_word(run), "; ".join(filter(None, [reason, _caution(run)])))


def _caution(run: Run) -> str:
    """Nothing for a run of the published configuration as it stands."""
    is_standard = is_published(run) and not run.job.config.deviations
    simulated = say("simulated", "en") if run.simulated else ""
    return "; ".join(filter(None, [simulated, "" if is_standard else profile_sentence(run, "en")]))


def _verdict(run: Run) -> str:
    verdict = run.metric(LOSS_ALIGNED.name)
    if verdict is None:
        return ""
    why = explain(verdict.reason or "", "en", verdict.detail)
    return verdict_sentence(verdict, "en") or f"no verdict on its loss: {why}"


def _status_word(run: Run) -> str:
    return run.ending.status if run.ending else "no ending"


def _times(run: Run) -> list[SummaryRow]:
    names = ("p_infer_whole", "p_infer_core", "p_infer_padded")
    if run.manifest.kind == "training":
        names = ("p_whole", "p_train", "p_core")
    speeds = [
        _row(name, measured_cell(run, name, units.per_second), _unit(run, name), _interval(run, name)) for name in names
    ]
    percentiles = [measured_cell(run, f"step_time_{each}", units.milliseconds) for each in ("p50", "p90", "p99")]
    return [
        _row("e2e_time", measured_cell(run, "e2e_time", units.one_decimal), "s", _time_note(run)),
        *speeds,
        *_tokens_per_device(run),
        _row("step time", joined(percentiles, " / "), "ms", "p50 / p90 / p99"),
    ]


def _tokens_per_device(run: Run) -> list[SummaryRow]:
    if run.manifest.kind == "inference":
        return []
    cell = measured_cell(run, "token/p/s", units.tokens_per_second)
    return [_row("token/p/s", cell, "tokens/s per device", _interval(run, "token/p/s"))]


def _unit(run: Run, name: str) -> str:
    metric = run.metric(name)
    return metric.unit if metric else run.manifest.sample_unit


def _time_note(run: Run) -> str:
    parts = {"start-up": run.metric("init_time"), "training": run.metric("train_time")}
    found = {name: metric.value for name, metric in parts.items() if metric and metric.value is not None}
    return ", ".join(f"{name} {units.one_decimal(value)} s" for name, value in found.items())


def _qualities(run: Run) -> list[SummaryRow]:
    rows = [_quality(run, quality) for quality in run.manifest.qualities]
    if any(row.label == "loss" for row in rows):
        return rows
    losses = [measured_cell(run, name, units.loss) for name in ("loss_first", "loss")]
    return [*rows, _row("loss", joined(losses, " -> "), "", "first step -> last step")]


def _details(run: Run) -> list[SummaryRow]:
    return [
        _row("mem", memory_cell(run), "GiB", _memory_note(run)),
        _row("MFU", measured_cell(run, "mfu", units.percent), "", mfu_sentence(run, "en")),
        _row("padding ratio", measured_cell(run, "padding_ratio", units.percent)),
        _row("steps kept", measured_cell(run, "steps_kept", units.count)),
        _row("steps dropped", measured_cell(run, "steps_dropped", units.count)),
        *_load(run),
    ]


def _load(run: Run) -> list[SummaryRow]:
    """Where the cores are the devices."""
    if run.job.memory_scope != "host":
        return []
    return [_row("cpu others", measured_cell(run, "cpu_others", units.percent), "", "of the cores, by other processes")]


def _memory_note(run: Run) -> str:
    used = run.metric("mem_used")
    if used is None or used.value is None:
        return ""
    when = peak_time(run, "en")
    read = f"peak on {used.inputs.get('device_id')}{when}, read by {used.inputs.get('probe')}"
    if run.job.memory_scope == "host":
        return f"host memory of one worker, {read}"
    return "; ".join([f"of one device, {read}", *beside_memory(run, "en")])


def _quality(run: Run, quality: Quality) -> SummaryRow:
    is_targeted = run.manifest.target is not None and run.manifest.target.metric == quality.name
    cell = measured_cell(run, quality.name, QUALITY_FORMATS[quality.format])
    notes = [target_sentence(run, "en") if is_targeted else "", evaluated_sentence(run, quality.name, "en")]
    return _row(quality.name, cell, "", "; ".join(filter(None, notes)))


def _interval(run: Run, name: str) -> str:
    metric = run.metric(name)
    if metric is None or metric.interval is None:
        return ""
    low, high = units.per_second(metric.interval.low), units.per_second(metric.interval.high)
    return f"{low} to {high} ({metric.interval.method})"


def _row(label: str, cell: Cell, unit: str = "", note: str = "") -> SummaryRow:
    if cell.reason:
        return SummaryRow(label, NOT_AVAILABLE, "; ".join(explanations(cell, "en")))
    value = f"{cell.text} {unit}" if unit else cell.text
    return SummaryRow(label, value, "; ".join(filter(None, [note, *cell.marks])), cell.marks)

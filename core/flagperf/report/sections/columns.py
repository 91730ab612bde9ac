"""The columns of the performance table, by the names used in page.columns of case.toml.

Every metric and every quality that the case declares can be a column. COLUMNS defines the columns that are not metrics:
how to fill them for a run and for a published result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from flagperf import units
from flagperf.errors import unknown_name
from flagperf.kinds import KINDS
from flagperf.messages import usable
from flagperf.metrics.aligned import LOSS_ALIGNED, NO_REFERENCE
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.registry import ENTRIES, entry_of
from flagperf.report.document import NOTHING, Empty, Head, TableCell, Text, Value
from flagperf.report.sections.alignment import verdict_word
from flagperf.report.sections.cells import Formatter, failure_cell, memory_cell, metric_cell
from flagperf.report.sections.naming import (
    configuration,
    layout,
    marks_in,
    of_measured_peak,
    overrides,
    run_configuration,
    short_configuration,
    vendor_and_device,
)
from flagperf.report.texts import Lang, label
from flagperf.spec import Manifest, PublishedResult
from flagperf.store.run import Run


@dataclass(frozen=True)
class Column:
    name: str
    head: str
    """The same in all languages. If empty, the message catalogues provide the head."""
    of_run: Callable[[Run, Lang], TableCell]
    of_reference: Callable[[PublishedResult, Lang], TableCell]
    needs_row: bool = True
    """False for a column that identifies the run; it has no row in the general table."""
    headline: bool = False
    """Marked in every table as a figure that readers look for first."""

    def title(self, lang: Lang, runs: Sequence[Run] = ()) -> str:
        """`runs` are those of all its cells."""
        return of_measured_peak(self.head or label(self.name, lang), marks_in(runs, self.name), lang)

    def titled(self, lang: Lang, runs: Sequence[Run] = ()) -> Head:
        return Head(self.title(lang, runs), self.headline)


def columns(manifest: Manifest) -> tuple[Column, ...]:
    """The columns of the case, in its order. Raises BadInput for an unknown name."""
    headline = KINDS[manifest.kind].headline
    found = []
    for name in manifest.page.columns:
        column = _column(manifest, name)
        if column is None:
            raise unknown_name(
                "column", name, [*COLUMNS, *ENTRIES, *manifest.own_metrics], f"(page.columns of case {manifest.name})"
            )
        found.append(replace(column, headline=name in headline))
    return tuple(found)


def _column(manifest: Manifest, name: str) -> Column | None:
    entry = entry_of(manifest, name)
    return metric_column(entry) if entry else COLUMNS.get(name)


def metric_column(entry: MetricEntry) -> Column:
    return Column(
        entry.name,
        entry.head or entry.name,
        lambda run, _lang: metric_cell(run, entry.name, entry.format),
        lambda reference, _lang: _published(reference, entry.name, entry.format),
    )


def metric_format(manifest: Manifest, name: str) -> Formatter:
    entry = entry_of(manifest, name)
    return entry.format if entry else units.setting


def _published(reference: PublishedResult, name: str, form: Formatter) -> TableCell:
    value = reference.values.get(name)
    return UNPUBLISHED if value is None else Value(form(value))


def _memory_of_run(run: Run, _lang: Lang) -> TableCell:
    """Shown for failed runs too, as far as it was sampled: memory is observed, not a result of the run."""
    cell = memory_cell(run)
    return failure_cell(run) if isinstance(cell, Empty) and not run.has_results else cell


def _memory_of_reference(reference: PublishedResult, _lang: Lang) -> TableCell:
    used, total = reference.values.get("mem_used"), reference.values.get("mem_total")
    if used is None or total is None:
        return UNPUBLISHED
    return Value(units.memory_cell(used, total))


def _configuration_of_run(run: Run, lang: Lang) -> TableCell:
    return Text(run_configuration(run, lang), short_configuration(run))


def _configuration_of_reference(reference: PublishedResult, lang: Lang) -> TableCell:
    device = vendor_and_device(reference.vendor, reference.device)
    shape = f"{reference.nodes}x{reference.devices_per_node}"
    return Text(configuration(device, reference.nodes, reference.devices_per_node, lang), f"{device} {shape}")


def _overrides_of_reference(reference: PublishedResult, _lang: Lang) -> TableCell:
    return Text(NOTHING if reference.overrides in ("", "none", NOTHING) else reference.overrides)


def _engine_of_run(run: Run, _lang: Lang) -> TableCell:
    speed = run.metric("p_infer_core")
    engine = speed.inputs.get("engine") if speed else None
    return Text(str(engine)) if engine else Empty("not_measured")


def _aligned_of_run(run: Run, _lang: Lang) -> TableCell:
    if run.metric(LOSS_ALIGNED.name) is None and run.has_results:
        return Empty(NO_REFERENCE.reason or "", usable(NO_REFERENCE.message, NO_REFERENCE.detail))
    return metric_cell(run, LOSS_ALIGNED.name, verdict_word)


UNPUBLISHED = Text(NOTHING)
"""The published page has no value for this column."""

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("configuration", "", _configuration_of_run, _configuration_of_reference, needs_row=False),
        Column(
            "precision",
            "precision",
            lambda run, _lang: Text(run.job.precision.name),
            lambda reference, _lang: Text(reference.precision),
        ),
        Column(
            "parallel",
            "parallel",
            lambda run, _lang: Text(layout(run)),
            lambda reference, _lang: Text(reference.parallel or NOTHING),
        ),
        Column("fix_hp", "fix_hp", lambda run, _lang: Text(overrides(run) or NOTHING), _overrides_of_reference),
        Column("engine", "", _engine_of_run, lambda reference, _lang: Text(reference.engine or NOTHING)),
        Column(
            LOSS_ALIGNED.name,
            "",
            _aligned_of_run,
            lambda reference, _lang: _published(reference, LOSS_ALIGNED.name, verdict_word),
        ),
        Column("mem", "mem", _memory_of_run, _memory_of_reference),
    )
}

"""The general and the performance table of a page: their rows and columns by the names that case.toml uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.errors import BadInput, unknown_name
from flagperf.kinds import KINDS
from flagperf.messages import Lang, choose, clauses, label, listed, remark, say, usable
from flagperf.metrics.alignment import LOSS_ALIGNED, NO_REFERENCE
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.registry import ENTRIES, entry_of
from flagperf.report.document import NOTHING, Block, Empty, Head, Table, TableCell, Text, Value
from flagperf.report.page_runs import PageRuns
from flagperf.report.wording import (
    Formatter,
    changes_sentence,
    configuration,
    failure_cell,
    has_published_profile,
    layout,
    marks_in,
    memory_cell,
    metric_cell,
    metric_format,
    of_measured_peak,
    overrides,
    run_configuration,
    short_configuration,
    vendor_and_device,
    vendor_word,
    verdict_word,
)
from flagperf.spec.manifest import Manifest
from flagperf.spec.published import PublishedResult
from flagperf.spec.values import flatten

# The columns of the performance table, by the names used in page.columns of case.toml.
#
# Every metric and every quality that the case declares can be a column. COLUMNS defines the columns that are not
# metrics: how to fill them for a run and for a published result.


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
        """Return the title of the column. `runs` are those of all its cells."""
        return of_measured_peak(self.head or label(self.name, lang), marks_in(runs, self.name), lang)

    def titled(self, lang: Lang, runs: Sequence[Run] = ()) -> Head:
        return Head(self.title(lang, runs), self.headline)


def columns(manifest: Manifest) -> tuple[Column, ...]:
    """Return the columns of the case, in its order. Raise BadInput for an unknown name."""
    headline = KINDS[manifest.kind].headline
    found = []
    for name in manifest.page.columns:
        entry = entry_of(manifest, name)
        if entry is None and name not in COLUMNS:
            known = [*COLUMNS, *ENTRIES, *manifest.own_metrics]
            raise unknown_name("column", name, known, f"(page.columns of case {manifest.name})")
        column = _metric_column(entry) if entry else COLUMNS[name]
        found.append(replace(column, headline=name in headline))
    return tuple(found)


def _metric_column(entry: MetricEntry) -> Column:
    return Column(
        entry.name,
        entry.head or entry.name,
        lambda run, _lang: metric_cell(run, entry.name, entry.format),
        lambda reference, _lang: _published(reference, entry.name, entry.format),
    )


def _published(reference: PublishedResult, name: str, form: Formatter) -> TableCell:
    value = reference.values.get(name)
    return UNPUBLISHED if value is None else Value(form(value))


def _memory_of_run(run: Run, _lang: Lang) -> TableCell:
    """Show memory of failed runs too, as far as it was sampled: it is observed, not a result of the run."""
    cell = memory_cell(run)
    return failure_cell(run) if isinstance(cell, Empty) and not run.has_results else cell


def _memory_of_reference(reference: PublishedResult, _lang: Lang) -> TableCell:
    used, total = reference.values.get("mem_used"), reference.values.get("mem_total")
    if used is None or total is None:
        return UNPUBLISHED
    return Value(units.memory_cell(used, total))


def _configuration_of_reference(reference: PublishedResult, lang: Lang) -> TableCell:
    device = vendor_and_device(reference.vendor, reference.device)
    shape = f"{reference.nodes}x{reference.devices_per_node}"
    return Text(configuration(device, reference.nodes, reference.devices_per_node, lang), f"{device} {shape}")


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
        Column(
            "configuration",
            "",
            lambda run, lang: Text(run_configuration(run, lang), short_configuration(run)),
            _configuration_of_reference,
            needs_row=False,
        ),
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
        Column(
            "fix_hp",
            "fix_hp",
            lambda run, _lang: Text(overrides(run) or NOTHING),
            lambda reference, _lang: Text(NOTHING if reference.overrides in ("", "none") else reference.overrides),
        ),
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

# The rows of the general table, by the names used in page.rows of case.toml.
#
# A row either has a value for all runs or points to columns of the performance table. Every metric and every quality
# that the case declares can be a row. ROWS defines the rows that are not metrics. `check_layout` refuses a case whose
# rows and columns do not list the same metrics.

Words = Callable[[PageRuns], str]


@dataclass(frozen=True)
class Row:
    name: str
    value: Words | None = None
    remark: Words | None = None
    columns: tuple[str, ...] = ()
    """The columns that it points to, if it has no value."""
    shown: str = ""
    """What the row calls these columns, if not by their heads."""
    headline: bool = False
    """Printed in bold."""


def rows(manifest: Manifest) -> tuple[Row, ...]:
    """Return the rows of the case, in its order. Raise BadInput for an unknown name."""
    own, page = manifest.own_metrics, manifest.page
    # `result` points to all qualities that are columns but not rows.
    pointed = tuple(
        each.name for each in manifest.qualities if each.name in page.columns and each.name not in page.rows
    )
    known = {**ROWS, "result": Row("result", columns=pointed, remark=None if manifest.target else lambda _page: "")}
    for name in manifest.page.rows:
        if name not in known and entry_of(manifest, name) is None:
            raise unknown_name("row", name, [*known, *ENTRIES, *own], f"(page.rows of case {manifest.name})")
    for table, texts in (("remarks", manifest.page.remarks), ("titles", manifest.page.titles)):
        for name in texts:
            if name not in manifest.page.rows:
                raise unknown_name("row", name, manifest.page.rows, f"(page.{table} of case {manifest.name})")
    headline = KINDS[manifest.kind].headline
    found = (
        known[name] if name in known and name not in own else Row(name, columns=(name,)) for name in manifest.page.rows
    )
    return tuple(replace(row, headline=bool(set(row.columns) & set(headline))) for row in found)


def check_layout(manifest: Manifest) -> None:
    """Raise BadInput unless page.rows and page.columns list the same metrics."""
    tabled = {column.name for column in columns(manifest) if column.needs_row}
    pointed = {name for row in rows(manifest) for name in row.columns}
    for row in rows(manifest):
        if row.value is None and not row.columns:
            raise BadInput(f"case {manifest.name}: row {row.name} points to no column; page.columns has no quality")
    for missing, there, here in (
        (tabled - pointed, "page.columns", "page.rows"),
        (pointed - tabled, "page.rows", "page.columns"),
    ):
        if missing:
            names = ", ".join(sorted(missing))
            raise BadInput(f"case {manifest.name}: {there} has {names}, but {here} does not; add it to {here}")


def row_title(row: Row, page: PageRuns) -> str:
    """Return the title from the case, else from its kind, else from the metric."""
    manifest = page.manifest
    entry = ENTRIES.get(row.name) or entry_of(manifest, row.name)
    if row.name in manifest.page.titles:
        title = choose(manifest.page.titles[row.name], page.lang)
    elif entry is None or f"row_{row.name}" in KINDS[manifest.kind].words:
        title = page.label(f"row_{row.name}")
    else:
        title = choose(entry.title, page.lang)
    return of_measured_peak(title, marks_in((recorded.run for recorded in page.runs), row.name), page.lang)


def row_value(row: Row, page: PageRuns) -> str:
    if row.value is not None:
        return row.value(page)
    runs = [recorded.run for recorded in page.runs]
    known = {column.name: column for column in columns(page.manifest)}
    if "performance" in KINDS[page.manifest.kind].sections:
        shown = row.shown or ", ".join(known[name].title(page.lang, runs) for name in row.columns)
        return say("see", page.lang, columns=shown, table=page.label("performance"))
    # Without that table the row has the values itself.
    cells = [[column.of_run(run, page.lang) for name, column in known.items() if name in row.columns] for run in runs]
    return page.values([", ".join(getattr(cell, "text", NOTHING) for cell in of_run) for of_run in cells])


def row_remark(row: Row, page: PageRuns) -> str:
    """Return the remark from the case, else the default one."""
    manifest = page.manifest
    if row.name in manifest.page.remarks:
        return choose(manifest.page.remarks[row.name], page.lang)
    if row.remark is not None:
        return row.remark(page)
    entry = entry_of(manifest, row.name) or (LOSS_ALIGNED if row.name == LOSS_ALIGNED.name else None)
    text = choose(entry.remark, page.lang) if entry else remark(row.name, page.lang)
    unit, target = manifest.sample_unit, manifest.target
    lengths = _values_of(page, manifest.sequence_key, units.setting) if manifest.sequence_key else ""
    return text.format(
        precisions="/".join(manifest.precisions),
        unit=f"{unit}(seq_length={lengths})" if lengths else unit,
        formula=manifest.mfu_formula or say("none", page.lang),
        target=_values_of(page, target.key, metric_format(manifest, target.metric)) if target else "",
    )


def _values_of(page: PageRuns, key: str, form: Formatter) -> str:
    """Return the value of a key in the configurations of the runs, or all that they have if it differs."""
    found = [dict(flatten(recorded.run.job.config.values)).get(key) for recorded in page.runs]
    return "/".join(form(value) for value in dict.fromkeys(found) if isinstance(value, int | float))


def _device(page: PageRuns) -> str:
    names = [
        vendor_and_device(vendor_word(recorded.run), recorded.run.job.device_model.short_name) for recorded in page.runs
    ]
    return listed(list(dict.fromkeys(names)), page.lang)


def _parameters(page: PageRuns) -> str:
    metrics = [recorded.run.metric("mfu") for recorded in page.runs]
    counts = [metric.inputs["parameters"] for metric in metrics if metric and "parameters" in metric.inputs]
    return say("parameters", page.lang, count="/".join(dict.fromkeys(map(units.count, counts)))) if counts else ""


def _data(page: PageRuns) -> str:
    has_files = any(recorded.run.job.data_files for recorded in page.runs)
    return say("data_in_notes" if has_files else "data_generated", page.lang)


def _extra(page: PageRuns) -> str:
    """List every changed value with the layer that changed it, and the profile if it is not the published one."""
    extras = []
    for recorded in page.runs:
        run = recorded.run
        profile = "" if has_published_profile(run) else say("profile", page.lang, profile=run.job.profile)
        extras.append([text for text in (profile, changes_sentence(run, page.lang)) if text])
    return clauses(page.merged(extras), page.lang) or say("none", page.lang)


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("task", lambda page: choose(page.manifest.task, page.lang)),
        Row("model", lambda page: page.manifest.model, _parameters),
        Row("dataset", lambda page: page.manifest.dataset, _data),
        Row("precision", columns=("precision",)),
        Row("parallel", columns=("parallel",)),
        Row("fix_hp", columns=("fix_hp",)),
        Row("device", _device),
        Row("mem", columns=("mem",), shown="mem(actual/total)"),
        Row("engine", columns=("engine",)),
        Row("loss_aligned", columns=("loss_aligned",)),
        Row("extra", _extra),
    )
}

# The two tables of every page: the general table (definitions) and the performance table (values).


def general(page: PageRuns) -> Iterator[Block]:
    """Show everything but figures of rows, which have a table of their own with more than a value."""
    left_out = {figure.name for figure in page.manifest.figures}
    if "performance" not in KINDS[page.manifest.kind].sections and "extra" in page.manifest.page.rows:
        left_out.add("fix_hp")  # that row has them, with where each comes from
    heads = tuple(Head(page.label(name)) for name in ("head_name", "head_value", "head_remark"))
    lines = tuple(
        (
            Text(row_title(row, page), strong=row.headline),
            Text(row_value(row, page), strong=row.headline),
            Text(row_remark(row, page)),
        )
        for row in rows(page.manifest)
        if row.name not in left_out
    )
    yield Table(heads, lines, page.label("general"))


def performance(page: PageRuns) -> Iterator[Block]:
    shown = columns(page.manifest)
    runs = [recorded.run for recorded in page.runs]
    heads = tuple(column.titled(page.lang, runs) for column in shown)
    lines = tuple(tuple(column.of_run(recorded.run, page.lang) for column in shown) for recorded in page.runs)
    remark = say("headlines", page.lang) if any(head.headline for head in heads) else ""
    yield Table(heads, lines, page.label("performance"), remark)

"""Measured rows of a comparison: those that differ most, then the others, folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.compare import Comparison
from flagperf.compare.rows import ComparedRow
from flagperf.report.document import Block, Empty, Table, TableCell, Text, Value
from flagperf.report.sections.contrast_cells import contrast_heads, ratio_text, verdict_cell
from flagperf.report.sections.row_groups import label_cell, label_heads, label_names, time_text
from flagperf.report.texts import Lang, clauses, label, listed, say

TOP = 10


def row_blocks(found: Comparison, lang: Lang) -> Iterator[Block]:
    rows = found.rows.rows
    if not rows:
        return
    yield _table(rows[:TOP], found, say("compare_rows", lang, count=len(rows[:TOP])), lang, _remark(found, lang))
    if len(rows) > TOP:
        yield _table(rows[TOP:], found, label("compare_other_rows", lang), lang, collapsed=True)


def _table(
    rows: Sequence[ComparedRow],
    found: Comparison,
    title: str,
    lang: Lang,
    remark: str = "",
    *,
    collapsed: bool = False,
) -> Table:
    names = label_names(rows)
    has_verdicts = [any(row.against[index].word for row in rows) for index in range(len(found.sides) - 1)]
    heads = (*label_heads(names, lang), *contrast_heads(found, has_verdicts, lang))
    lines = tuple(tuple(_cells(row, names, has_verdicts, lang)) for row in rows)
    return Table(heads, lines, title, remark, collapsed=collapsed)


def _cells(row: ComparedRow, names: Sequence[str], has_verdicts: Sequence[bool], lang: Lang) -> Iterator[TableCell]:
    yield from (label_cell(row, name) for name in names)
    yield _value(row, 0)
    for index, (contrast, has_verdict) in enumerate(zip(row.against, has_verdicts, strict=True), start=1):
        yield _value(row, index)
        yield Text(ratio_text(contrast))
        if has_verdict:
            yield verdict_cell(contrast, lang)


def _value(row: ComparedRow, index: int) -> TableCell:
    value = row.values[index]
    if value is None:
        return Empty("not_measured")
    if row.unit == "s":
        text = time_text(value)
    elif row.unit == "bytes":
        text = f"{units.four_digits(value / units.GIB)} GiB"
    else:
        text = f"{units.four_digits(value)} {row.unit}".strip()
    return Value(text, marks=row.marks[index])


def _remark(found: Comparison, lang: Lang) -> str:
    verdicts = Counter(each.word for row in found.rows.rows for each in row.against if each.word)
    counted = listed([f"{count} {label(f'verdict_{word}', lang)}" for word, count in verdicts.items()], lang)
    missing = [
        say("compare_rows_missing", lang, side=side.letter, count=count)
        for side, count in zip(found.sides, found.rows.missing, strict=True)
        if count
    ]
    corrected = say("compare_rows_holm", lang, verdicts=counted) if counted else ""
    return clauses([say("compare_rows_compared", lang, count=len(found.rows.rows)), corrected, *missing], lang)

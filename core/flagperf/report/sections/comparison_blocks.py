"""A comparison as blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.compare.comparison import Comparison
from flagperf.compare.conditions import Difference
from flagperf.compare.contrasts import ComparedFigure, ComparedRow, SideValue
from flagperf.compare.ratio import MARGIN, MOST_SAME, Contrast
from flagperf.compare.sides import Side
from flagperf.messages import Lang, clauses, label, listed, say, usable, words
from flagperf.report.document import (
    NOTHING,
    Block,
    Bullets,
    Empty,
    Facts,
    Head,
    Heading,
    LabelledCell,
    Status,
    Table,
    TableCell,
    Text,
    Value,
)
from flagperf.report.sections.row_tables import label_cell, label_heads, label_names, time_text
from flagperf.report.wording import of_measured_peak, vendor_and_device, vendor_word, with_unit

# Cells that compare a side with the baseline: the ratio with its interval, and the verdict.


def contrast_heads(found: Comparison, has_verdicts: Sequence[bool], lang: Lang) -> Iterator[Head]:
    """The baseline; then of each side its value, the ratio, and the verdict where it has some."""
    baseline, *others = found.sides
    yield Head(baseline.letter)
    for side, has_verdict in zip(others, has_verdicts, strict=True):
        yield from (Head(side.letter), Head(f"{side.letter} / {baseline.letter}"))
        if has_verdict:
            yield Head(label("head_verdict", lang))


def ratio_text(contrast: Contrast) -> str:
    """`1.034 (1.021 - 1.047)`."""
    ratio = contrast.ratio
    if ratio is None:
        return ""
    if ratio.low is None or ratio.high is None:
        return units.four_digits(ratio.value)
    low, high = units.four_digits(ratio.low), units.four_digits(ratio.high)
    return f"{units.four_digits(ratio.value)} ({low} - {high})"


def verdict_cell(contrast: Contrast, lang: Lang) -> TableCell:
    if contrast.word is None or contrast.verdict is None:
        why = contrast.why
        return Text("" if why is None or why.code == "compare.no_direction" else words(why, lang))
    text = label(f"verdict_{contrast.word}", lang)
    if contrast.word == "undecided":
        return Text(say("compare_more_runs", lang, verdict=text, needed=_needed(contrast, lang)))
    if contrast.verdict.margin > MARGIN:
        margin = say("compare_margin", lang, margin=units.percent(contrast.verdict.margin))
        text = say("with_remark", lang, text=text, remark=margin)
    return Text(text) if contrast.is_good is None else Status(text, contrast.is_good)


def _needed(contrast: Contrast, lang: Lang) -> str:
    assert contrast.verdict is not None and contrast.ratio is not None
    count, is_paired = contrast.verdict.runs_needed, contrast.ratio.method == "paired"
    if count is None and contrast.verdict.margin > MOST_SAME:
        return say("compare_unsteady", lang, margin=units.percent(contrast.verdict.margin))
    if count is None:
        return say("compare_too_many_pairs" if is_paired else "compare_too_many", lang)
    name = "compare_pairs_needed" if is_paired else "compare_runs_needed"
    further = max(1, count - contrast.ratio.num_runs)
    return say(name, lang, count=contrast.ratio.num_runs + further, further=further)


# Measured rows of a comparison: those that differ most, then the others, folded.


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
    lines = tuple(tuple(_row_cells(row, names, has_verdicts, lang)) for row in rows)
    return Table(heads, lines, title, remark, collapsed=collapsed)


def _row_cells(row: ComparedRow, names: Sequence[str], has_verdicts: Sequence[bool], lang: Lang) -> Iterator[TableCell]:
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


# A comparison: the sides, what makes them incomparable and what differs first, then figures with their verdicts.


MAX_DIFFERENCES = 12
"""Of environment and software. More are folded."""

SAID_ELSEWHERE = ("compare.single", "compare.no_direction", "compare.incomparable")

SETUP = ("hardware", "precision", "configuration")


def comparison_blocks(found: Comparison, lang: Lang) -> Iterator[Block]:
    yield Heading(say("compare_heading", lang, case=found.sides[0].case.name))
    yield sides(found, lang)
    obstacles = obstacle_texts(found, lang)
    if obstacles:
        yield Bullets(tuple(map(Text, obstacles)), label("compare_obstacles", lang))
    yield from differences(found, lang, lambda subjects: say("compare_differs", lang, subjects=subjects))
    yield from main_figures(found, lang, label("results", lang))
    yield from other_figures(found, lang)
    yield from limits(found, lang, label("compare_limits", lang))
    yield notes(found, lang, label("notes", lang))


def main_figures(found: Comparison, lang: Lang, title: str = "") -> Iterator[Block]:
    yield from _figures(found, [figure for figure in found.figures if figure.is_main], title, lang)


def other_figures(found: Comparison, lang: Lang) -> Iterator[Block]:
    """Metrics that are folded, and measured rows."""
    others = [figure for figure in found.figures if not figure.is_main and _says_something(figure)]
    yield from _figures(found, others, label("compare_others", lang), lang, collapsed=True)
    yield from row_blocks(found, lang)


def _says_something(figure: ComparedFigure) -> bool:
    """A count that is the same everywhere does not."""
    return figure.entry.better is not None or any(each.ratio and each.ratio.value != 1 for each in figure.against)


# --- what is compared -----------------------------------------------------------------------------------------------


def sides(found: Comparison, lang: Lang) -> Facts:
    return Facts(tuple(_side_fact(side, found, lang) for side in found.sides), label("compare_sides", lang))


def _side_fact(side: Side, found: Comparison, lang: Lang) -> LabelledCell:
    role = say("compare_baseline", lang) if side is found.sides[0] else ""
    about = _reference_words(side, lang) if side.reference else _run_words(side, lang)
    return LabelledCell(side.letter, Text(side.word), clauses([role, *about, *_left_out(side, lang)], lang))


def _run_words(side: Side, lang: Lang) -> list[str]:
    run = side.runs[0].run
    device = vendor_and_device(vendor_word(run), run.job.device_model.short_name)
    profile = say("profile", lang, profile=run.job.profile)
    setup = listed([device, run.job.shape, run.job.precision.name, profile], lang)
    return [say("compare_run" if len(side.runs) == 1 else "compare_runs", lang, count=len(side.runs)), setup]


def _reference_words(side: Side, lang: Lang) -> list[str]:
    assert side.reference is not None
    changed = "" if side.reference.overrides in ("", "none", NOTHING) else side.reference.overrides
    return [say("compare_published", lang), changed, say("compare_source", lang, source=side.reference.source)]


def _left_out(side: Side, lang: Lang) -> list[str]:
    if not side.left_out:
        return []
    return [say("compare_left_out", lang, runs=listed([_ended(run, lang) for run in side.left_out], lang))]


def _ended(run: Run, lang: Lang) -> str:
    if run.ending is None:
        return say("with_remark", lang, text=run.id, remark=say("no_ending", lang))
    if run.has_results:
        return say("with_remark", lang, text=run.id, remark=say("compare_unpaired", lang))
    why = words(usable(run.ending.message, run.ending.reason), lang)
    return say("with_remark", lang, text=run.id, remark=say("ended", lang, status=run.ending.status, why=why))


def obstacle_texts(found: Comparison, lang: Lang) -> list[str]:
    """What makes sides incomparable."""
    return list(dict.fromkeys(words(each, lang) for reasons in found.obstacles.values() for each in reasons))


def differences(found: Comparison, lang: Lang, title: Callable[[str], str]) -> Iterator[Block]:
    """Setup, then surroundings. `title` makes the title of a table of the subjects that do differ."""
    own = [each for each in found.differences if each.subject in SETUP]
    others = [each for each in found.differences if each.subject not in SETUP]
    for rows, collapsed in ((own, False), (others, len(others) > MAX_DIFFERENCES)):
        if rows:
            subjects = listed([label(f"compare_{name}", lang) for name in dict.fromkeys(r.subject for r in rows)], lang)
            yield _difference_table(rows, found.sides, title(subjects), lang, collapsed=collapsed)


def _difference_table(
    rows: Sequence[Difference], sides: Sequence[Side], title: str, lang: Lang, *, collapsed: bool = False
) -> Table:
    heads = (Head(label("compare_subject", lang)), Head(label("compare_what", lang)), *_letters(sides))
    lines = tuple(
        (Text(label(f"compare_{row.subject}", lang)), Text(row.name), *(Text(value or NOTHING) for value in row.values))
        for row in rows
    )
    return Table(heads, lines, title, collapsed=collapsed)


def _letters(sides: Sequence[Side]) -> list[Head]:
    return [Head(side.letter) for side in sides]


# --- figures --------------------------------------------------------------------------------------------------------


def _figures(
    found: Comparison, figures: Sequence[ComparedFigure], title: str, lang: Lang, *, collapsed: bool = False
) -> Iterator[Block]:
    if not figures:
        return
    has_verdicts = [any(figure.against[index].word for figure in figures) for index in range(len(found.sides) - 1)]
    heads = (Head(label("head_name", lang)), *contrast_heads(found, has_verdicts, lang))
    rows = tuple(tuple(_cells(figure, has_verdicts, lang)) for figure in figures)
    yield Table(heads, rows, title, collapsed=collapsed)


def _cells(figure: ComparedFigure, has_verdicts: Sequence[bool], lang: Lang) -> Iterator[TableCell]:
    marks = (side.marks for side in figure.sides if side.value is not None)
    name = of_measured_peak(figure.entry.head or figure.entry.name, marks, lang)
    yield Text(name, strong=figure.is_headline)
    yield _value_cell(figure, figure.sides[0], lang)
    for value, contrast, has_verdict in zip(figure.sides[1:], figure.against, has_verdicts, strict=True):
        yield _value_cell(figure, value, lang)
        yield Text(ratio_text(contrast))
        if has_verdict:
            yield verdict_cell(contrast, lang)


def _value_cell(figure: ComparedFigure, value: SideValue, lang: Lang) -> TableCell:
    if value.value is None:
        return Empty(value.reason, value.detail)
    text = _with_digits(figure, value.value)
    if len(value.values) < value.num_runs:
        some = say("compare_some", lang, count=len(value.values), all=value.num_runs)
        text = say("with_remark", lang, text=text, remark=some)
    return Value(text, marks=value.marks)


def _with_digits(figure: ComparedFigure, value: float) -> str:
    """Memory has more digits than elsewhere: 0.4 GiB and 0.4 GiB may differ by a tenth."""
    if figure.entry.shown_unit == "GiB":
        return f"{units.four_digits(value / units.GIB)} GiB"
    return with_unit(figure.entry, value, figure.unit)


# --- what it means --------------------------------------------------------------------------------------------------


def limits(found: Comparison, lang: Lang, title: str = "") -> Iterator[Block]:
    items: list[TableCell] = []
    for each in found.limits:
        state = label(f"limit_{each.state}", lang)
        how = say("limit_interval" if each.by_interval else "limit_difference", lang)
        why = words(each.why, lang) if each.why else how
        named = say("limit", lang, limit=each.limit.text, side=each.side, state=state)
        text = say("with_remark", lang, text=named, remark=why)
        items.append(Status(text, each.state == "kept") if each.state in ("kept", "broken") else Text(text))
    if items:
        yield Bullets(tuple(items), title)


def notes(found: Comparison, lang: Lang, title: str = "") -> Bullets:
    return Bullets(tuple(map(Text, _notes(found, lang))), title)


def _notes(found: Comparison, lang: Lang) -> Iterator[str]:
    contrasts = [each for figure in found.figures for each in figure.against]
    has_groups = any(each.ratio and each.ratio.has_interval for each in contrasts)
    yield say("compare_about_groups" if has_groups else "compare_about_single", lang)
    if any(each.word for each in contrasts):
        yield say("compare_about_margin", lang, margin=units.percent(found.margin))
    if found.paired:
        yield say("compare_about_pairs", lang, sides=listed(found.paired, lang))
    if len(found.sides) > 2 and has_groups:
        yield say("compare_about_holm", lang, count=len(found.sides) - 1)
    if not found.differences and not found.obstacles and not any(side.reference for side in found.sides):
        yield say("compare_about_twins", lang)
    if not any(each.ratio for each in contrasts) and not found.rows.rows:
        yield say("compare_nothing_shared", lang)
    yield from _without_verdict(contrasts, lang)
    yield from _inside(found, lang)


def _without_verdict(contrasts: Sequence[Contrast], lang: Lang) -> Iterator[str]:
    """Reasons that stand in no column of verdicts."""
    if not any(each.word for each in contrasts):
        found = dict.fromkeys(each.why for each in contrasts if each.why is not None and each.ratio is not None)
        for why in found:
            if why.code not in SAID_ELSEWHERE:
                yield say("compare_no_verdict", lang, why=words(why, lang))


def _inside(found: Comparison, lang: Lang) -> Iterator[str]:
    if found.inside is None:
        return
    effective = [units.count(number) for number in found.inside.effective]
    yield say(
        "compare_inside",
        lang,
        ratio=ratio_text(Contrast(found.inside.ratio)),
        one=found.inside.num_steps[0],
        other=found.inside.num_steps[1],
        effective=effective[0],
        others=effective[1],
    )

"""A comparison as blocks: sides, what makes them incomparable and what differs first, then figures with verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flagperf import units
from flagperf.compare.comparison import Comparison
from flagperf.compare.contrasts import ComparedFigure, ComparedRow
from flagperf.compare.ratio import MARGIN, MOST_SAME, Contrast
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

Line = tuple[Sequence[TableCell], Sequence[TableCell], Sequence[Contrast]]
"""What a row is about, the values of all sides, and the contrast of each side but the baseline."""


def _contrast_table(
    found: Comparison,
    heads: Sequence[Head],
    lines: Sequence[Line],
    title: str,
    lang: Lang,
    *,
    remark: str = "",
    collapsed: bool = False,
) -> Table:
    """Return the value of every side, with the ratio to the baseline, and with the verdict where a side has some."""
    baseline, *others = found.sides
    columns = [*heads, Head(baseline.letter)]
    has_verdicts = [any(against[index].word for _, _, against in lines) for index in range(len(others))]
    for side, has_verdict in zip(others, has_verdicts, strict=True):
        columns += [Head(side.letter), Head(f"{side.letter} / {baseline.letter}")]
        columns += [Head(label("head_verdict", lang))] if has_verdict else []
    rows = []
    for about, values, against in lines:
        cells = [*about, values[0]]
        for value, contrast, has_verdict in zip(values[1:], against, has_verdicts, strict=True):
            cells += [value, Text(ratio_text(contrast))]
            cells += [verdict_cell(contrast, lang)] if has_verdict else []
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows), title, remark, collapsed=collapsed)


def ratio_text(contrast: Contrast) -> str:
    """Return `1.034 (1.021 - 1.047)`."""
    ratio = contrast.ratio
    if ratio is None:
        return ""
    if ratio.low is None or ratio.high is None:
        return units.four_digits(ratio.value)
    low, high = units.four_digits(ratio.low), units.four_digits(ratio.high)
    return f"{units.four_digits(ratio.value)} ({low} - {high})"


def verdict_cell(contrast: Contrast, lang: Lang) -> TableCell:
    verdict, ratio = contrast.verdict, contrast.ratio
    if contrast.word is None or verdict is None:
        why = contrast.why
        return Text("" if why is None or why.code == "compare.no_direction" else words(why, lang))
    text = label(f"verdict_{contrast.word}", lang)
    if contrast.word == "undecided":
        assert ratio is not None
        is_paired = ratio.method == "paired"
        if verdict.runs_needed is not None:
            name = "compare_pairs_needed" if is_paired else "compare_runs_needed"
            further = max(1, verdict.runs_needed - ratio.num_runs)
            needed = say(name, lang, count=ratio.num_runs + further, further=further)
        elif verdict.margin > MOST_SAME:
            needed = say("compare_unsteady", lang, margin=units.percent(verdict.margin))
        else:
            needed = say("compare_too_many_pairs" if is_paired else "compare_too_many", lang)
        return Text(say("compare_more_runs", lang, verdict=text, needed=needed))
    if verdict.margin > MARGIN:
        margin = say("compare_margin", lang, margin=units.percent(verdict.margin))
        text = say("with_remark", lang, text=text, remark=margin)
    return Text(text) if contrast.is_good is None else Status(text, contrast.is_good)


# Measured rows of a comparison: those that differ most, then the others, folded.

TOP = 10


def row_blocks(found: Comparison, lang: Lang) -> Iterator[Block]:
    rows = found.rows.rows
    if not rows:
        return
    verdicts = Counter(each.word for row in rows for each in row.against if each.word)
    counted = listed([f"{count} {label(f'verdict_{word}', lang)}" for word, count in verdicts.items()], lang)
    remarks = [say("compare_rows_compared", lang, count=len(rows))]
    remarks += [say("compare_rows_holm", lang, verdicts=counted)] if counted else []
    for side, count in zip(found.sides, found.rows.missing, strict=True):
        remarks += [say("compare_rows_missing", lang, side=side.letter, count=count)] if count else []
    top, others = rows[:TOP], rows[TOP:]
    title = say("compare_rows", lang, count=len(top))
    yield _row_table(found, top, title, lang, remark=clauses(remarks, lang))
    if others:
        yield _row_table(found, others, label("compare_other_rows", lang), lang, collapsed=True)


def _row_table(found: Comparison, rows: Sequence[ComparedRow], title: str, lang: Lang, **more: Any) -> Table:
    names = label_names(rows)
    lines = []
    for row in rows:
        values: list[TableCell] = []
        for value, marks in zip(row.values, row.marks, strict=True):
            if value is None:
                values.append(Empty("not_measured"))
            elif row.unit == "s":
                values.append(Value(time_text(value), marks=marks))
            elif row.unit == "bytes":
                values.append(Value(f"{units.four_digits(value / units.GIB)} GiB", marks=marks))
            else:
                values.append(Value(f"{units.four_digits(value)} {row.unit}".strip(), marks=marks))
        lines.append(([label_cell(row, name) for name in names], values, row.against))
    return _contrast_table(found, label_heads(names, lang), lines, title, lang, **more)


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
    shown = [figure for figure in found.figures if figure.is_main]
    if shown:
        yield _figure_table(found, shown, title, lang)


def other_figures(found: Comparison, lang: Lang) -> Iterator[Block]:
    """Show metrics that are folded, and measured rows. A count that is the same everywhere is left out."""
    shown = [
        figure
        for figure in found.figures
        if not figure.is_main
        and (figure.entry.better is not None or any(each.ratio and each.ratio.value != 1 for each in figure.against))
    ]
    if shown:
        yield _figure_table(found, shown, label("compare_others", lang), lang, collapsed=True)
    yield from row_blocks(found, lang)


# --- what is compared -----------------------------------------------------------------------------------------------


def sides(found: Comparison, lang: Lang) -> Facts:
    facts = []
    for side in found.sides:
        about = [say("compare_baseline", lang)] if side is found.sides[0] else []
        if side.reference:
            changed = "" if side.reference.overrides in ("", "none", NOTHING) else side.reference.overrides
            source = say("compare_source", lang, source=side.reference.source)
            about += [say("compare_published", lang), changed, source]
        else:
            run, num_runs = side.runs[0].run, len(side.runs)
            device = vendor_and_device(vendor_word(run), run.job.device_model.short_name)
            profile = say("profile", lang, profile=run.job.profile)
            about.append(say("compare_run" if num_runs == 1 else "compare_runs", lang, count=num_runs))
            about.append(listed([device, run.job.shape, run.job.precision.name, profile], lang))
        left_out = []
        for run in side.left_out:
            if run.ending is None:
                why = say("no_ending", lang)
            elif run.has_results:
                why = say("compare_unpaired", lang)
            else:
                reason = words(usable(run.ending.message, run.ending.reason), lang)
                why = say("ended", lang, status=run.ending.status, why=reason)
            left_out.append(say("with_remark", lang, text=run.id, remark=why))
        if left_out:
            about.append(say("compare_left_out", lang, runs=listed(left_out, lang)))
        facts.append(LabelledCell(side.letter, Text(side.word), clauses(about, lang)))
    return Facts(tuple(facts), label("compare_sides", lang))


def obstacle_texts(found: Comparison, lang: Lang) -> list[str]:
    return list(dict.fromkeys(words(each, lang) for reasons in found.obstacles.values() for each in reasons))


def differences(found: Comparison, lang: Lang, title: Callable[[str], str]) -> Iterator[Block]:
    """Show what differs in the setup, then in its surroundings. `title` makes a title of the subjects that differ."""
    own = [each for each in found.differences if each.subject in SETUP]
    others = [each for each in found.differences if each.subject not in SETUP]
    heads = [Head(label(name, lang)) for name in ("compare_subject", "compare_what")]
    heads += [Head(side.letter) for side in found.sides]
    for each, collapsed in ((own, False), (others, len(others) > MAX_DIFFERENCES)):
        if each:
            names = [label(f"compare_{row.subject}", lang) for row in each]
            lines = tuple(
                (Text(name), Text(row.name), *(Text(value or NOTHING) for value in row.values))
                for name, row in zip(names, each, strict=True)
            )
            subjects = listed(list(dict.fromkeys(names)), lang)
            yield Table(tuple(heads), lines, title(subjects), collapsed=collapsed)


# --- figures --------------------------------------------------------------------------------------------------------


def _figure_table(found: Comparison, figures: Sequence[ComparedFigure], title: str, lang: Lang, **more: Any) -> Table:
    lines = []
    for figure in figures:
        marks = (side.marks for side in figure.sides if side.value is not None)
        name = of_measured_peak(figure.entry.head or figure.entry.name, marks, lang)
        values: list[TableCell] = []
        for side in figure.sides:
            if side.value is None:
                values.append(Empty(side.reason, side.detail))
                continue
            text = with_unit(figure.entry, side.value, figure.unit)
            if figure.entry.shown_unit == "GiB":  # more digits than elsewhere: 0.4 and 0.4 GiB may differ by a tenth
                text = f"{units.four_digits(side.value / units.GIB)} GiB"
            if len(side.values) < side.num_runs:
                some = say("compare_some", lang, count=len(side.values), all=side.num_runs)
                text = say("with_remark", lang, text=text, remark=some)
            values.append(Value(text, marks=side.marks))
        lines.append(((Text(name, strong=figure.is_headline),), values, figure.against))
    return _contrast_table(found, [Head(label("head_name", lang))], lines, title, lang, **more)


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
    contrasts = [each for figure in found.figures for each in figure.against]
    has_groups = any(each.ratio and each.ratio.has_interval for each in contrasts)
    texts = [say("compare_about_groups" if has_groups else "compare_about_single", lang)]
    if any(each.word for each in contrasts):
        texts.append(say("compare_about_margin", lang, margin=units.percent(found.margin)))
    if found.paired:
        texts.append(say("compare_about_pairs", lang, sides=listed(found.paired, lang)))
    if len(found.sides) > 2 and has_groups:
        texts.append(say("compare_about_holm", lang, count=len(found.sides) - 1))
    if not found.differences and not found.obstacles and not any(side.reference for side in found.sides):
        texts.append(say("compare_about_twins", lang))
    if not any(each.ratio for each in contrasts) and not found.rows.rows:
        texts.append(say("compare_nothing_shared", lang))
    if not any(each.word for each in contrasts):  # no column of verdicts has the reasons
        for why in dict.fromkeys(each.why for each in contrasts if each.why is not None and each.ratio is not None):
            if why.code not in SAID_ELSEWHERE:
                texts.append(say("compare_no_verdict", lang, why=words(why, lang)))
    if found.inside is not None:
        (one, other), effective = found.inside.num_steps, map(units.count, found.inside.effective)
        numbers = {"one": one, "other": other, **dict(zip(("effective", "others"), effective, strict=True))}
        texts.append(say("compare_inside", lang, ratio=ratio_text(Contrast(found.inside.ratio)), **numbers))
    return Bullets(tuple(map(Text, texts)), title)

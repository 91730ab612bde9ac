"""A comparison as a page that is looked at: what makes sides incomparable and what differs, then the main ratios on a
card, all of them on one axis, and the tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.compare.comparison import Comparison
from flagperf.messages import Lang, choose, clauses, label, say, web
from flagperf.report.document import (
    Block,
    Document,
    Heading,
    Headline,
    Intervals,
    KeyFigure,
    RatioInterval,
    Status,
    Text,
    Value,
)
from flagperf.report.sections.comparison_blocks import (
    differences,
    limits,
    main_figures,
    notes,
    obstacle_texts,
    other_figures,
    ratio_text,
    sides,
    verdict_cell,
)


def comparison_web_page(found: Comparison, lang: Lang = "en") -> Document:
    obstacle = label("compare_obstacles", lang)
    cautions = [say("line", lang, label=obstacle, value=each) for each in obstacle_texts(found, lang)]
    title = say("compare_heading", lang, case=choose(found.sides[0].case.title, lang))
    blocks: list[Block] = [Headline(title, (), cautions=tuple(cautions)), sides(found, lang)]
    figures = (*_ratios(found, lang), *main_figures(found, lang), *other_figures(found, lang))
    for heading, section in (
        (web("compare_differences", lang), differences(found, lang, lambda text: text[:1].upper() + text[1:])),
        (web("results", lang), figures),
        (label("compare_limits", lang), limits(found, lang)),
        (label("notes", lang), (notes(found, lang),)),
    ):
        inside = tuple(section)
        blocks += (Heading(heading, level=2), *inside) if inside else ()
    return Document(lang, tuple(blocks), say("compare_heading", lang, case=found.sides[0].case.name))


def _ratios(found: Comparison, lang: Lang) -> Iterator[Block]:
    """Yield the main ratios, printed large where sides are comparable, then on one axis."""
    figures, rows = [], []
    for figure in found.figures:
        marks = tuple(dict.fromkeys(mark for each in figure.sides for mark in each.marks))
        for side, contrast in zip(found.sides[1:], figure.against, strict=True):
            ratio = contrast.ratio
            if ratio is None:
                continue
            name = f"{figure.entry.head or figure.entry.name}, {side.letter} / {found.sides[0].letter}"
            if figure.is_headline and side.letter not in found.obstacles:
                value, _, interval = ratio_text(contrast).partition(" ")
                verdict = verdict_cell(contrast, lang)
                said = verdict.text if isinstance(verdict, Text | Status) else ""
                note = clauses([interval.strip("()"), said], lang)
                figures.append(KeyFigure(name, Value(value, marks=marks), note, headline=True))
            if figure.is_main:
                shown = (name, ratio.value, ratio_text(contrast))
                rows.append(RatioInterval(*shown, ratio.low, ratio.high, contrast.is_good))
    if figures:
        yield Headline("", (), figures=tuple(figures))
    if rows:
        yield Intervals(web("ratios", lang), tuple(rows), web("ratios_remark", lang))

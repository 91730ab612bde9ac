"""A comparison as a page that is looked at: what makes sides incomparable and what differs, then the main ratios on a
card, all of them on one axis, and the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf.compare.comparison import Comparison
from flagperf.compare.contrasts import Figure
from flagperf.compare.sides import Side
from flagperf.messages import Lang, choose, clauses, label, say, web
from flagperf.report.document import (
    Block,
    Document,
    Heading,
    Headline,
    Interval,
    Intervals,
    KeyFigure,
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


def comparison_page(found: Comparison, lang: Lang) -> Iterator[Block]:
    yield from (_head(found, lang), sides(found, lang))
    yield from _section(web("compare_differences", lang), tuple(differences(found, lang, _capitalized)))
    figures = (*main_figures(found, lang), *other_figures(found, lang))
    results = (*_card(found, lang), *_ratios(found, lang), *figures)
    yield from _section(web("results", lang), results)
    yield from _section(label("compare_limits", lang), tuple(limits(found, lang)))
    yield from _section(label("notes", lang), (notes(found, lang),))


def _head(found: Comparison, lang: Lang) -> Headline:
    said = [
        say("line", lang, label=label("compare_obstacles", lang), value=each) for each in obstacle_texts(found, lang)
    ]
    title = say("compare_heading", lang, case=choose(found.sides[0].case.title, lang))
    return Headline(title, (), cautions=tuple(said))


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _section(title: str, blocks: Sequence[Block]) -> Iterator[Block]:
    """Nothing without content."""
    if blocks:
        yield from (Heading(title, level=2), *blocks)


# --- the card -------------------------------------------------------------------------------------------------------


def _card(found: Comparison, lang: Lang) -> Iterator[Headline]:
    """None of sides that are not comparable: what is printed large is taken for the result."""
    figures = tuple(_key_figures(found, lang))
    if figures:
        yield Headline("", (), figures=figures)


def _key_figures(found: Comparison, lang: Lang) -> Iterator[KeyFigure]:
    for figure in found.figures:
        for side, contrast in zip(found.sides[1:], figure.against, strict=True):
            if figure.is_headline and contrast.ratio is not None and side.letter not in found.obstacles:
                value, _, interval = ratio_text(contrast).partition(" ")
                verdict = verdict_cell(contrast, lang)
                said = verdict.text if isinstance(verdict, Text | Status) else ""
                note = clauses([interval.strip("()"), said], lang)
                marks = dict.fromkeys(mark for each in figure.sides for mark in each.marks)
                yield KeyFigure(_named(figure, side, found), Value(value, marks=tuple(marks)), note, headline=True)


# --- the chart ------------------------------------------------------------------------------------------------------


def _ratios(found: Comparison, lang: Lang) -> Iterator[Intervals]:
    """Of the main figures."""
    rows = [
        Interval(
            _named(figure, side, found), ratio.value, ratio_text(contrast), ratio.low, ratio.high, contrast.is_good
        )
        for figure in found.figures
        for side, contrast in zip(found.sides[1:], figure.against, strict=True)
        if figure.is_main and (ratio := contrast.ratio) is not None
    ]
    if rows:
        yield Intervals(web("ratios", lang), tuple(rows), web("ratios_remark", lang))


def _named(figure: Figure, side: Side, found: Comparison) -> str:
    """`p_core, B / A`."""
    return f"{figure.entry.head or figure.entry.name}, {side.letter} / {found.sides[0].letter}"


# The documents that commands show. Published pages are in page.py.


def comparison_web_page(found: Comparison, lang: Lang = "en") -> Document:
    return Document(
        lang, tuple(comparison_page(found, lang)), say("compare_heading", lang, case=found.sides[0].case.name)
    )

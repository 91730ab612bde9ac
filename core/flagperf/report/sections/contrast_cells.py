"""Cells that compare a side with the baseline: the ratio with its interval, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.compare import Comparison, Contrast
from flagperf.compare.verdict import MARGIN, MOST_SAME
from flagperf.messages import words
from flagperf.report.document import Head, Status, TableCell, Text
from flagperf.report.texts import Lang, label, say


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

"""Contrast: something of one side against the same of the baseline, with the verdict that its interval allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.compare.ratio import Ratio
from flagperf.compare.verdict import Place, Verdict, judge
from flagperf.messages import Message, message

Word = Literal["faster", "slower", "better", "worse", "same", "undecided"]

Better = Literal["faster", "quicker", "higher", "lower"]
"""Which way is better, as MetricEntry.better says it."""


class Contrast(msgspec.Struct, frozen=True):
    ratio: Ratio | None = None
    verdict: Verdict | None = None
    word: Word | None = None
    why: Message | None = None
    """Why there is no ratio, or no verdict."""

    @property
    def is_good(self) -> bool | None:
        return {"faster": True, "better": True, "slower": False, "worse": False}.get(self.word or "")


def judged(contrasts: Sequence[Contrast], margins: Sequence[float], better: Sequence[Better | None]) -> list[Contrast]:
    """With their verdicts, which are corrected for the number of those that have one."""
    reasons = [each.why or _obstacle(each, way) for each, way in zip(contrasts, better, strict=True)]
    open_ones = [index for index, why in enumerate(reasons) if why is None]
    ratios = [ratio for index in open_ones if (ratio := contrasts[index].ratio) is not None]
    verdicts = dict(zip(open_ones, judge(ratios, [margins[index] for index in open_ones]), strict=True))
    found = []
    for index, (each, why) in enumerate(zip(contrasts, reasons, strict=True)):
        verdict = verdicts.get(index)
        word = word_of(verdict.place, better[index]) if verdict else None
        found.append(msgspec.structs.replace(each, verdict=verdict, word=word, why=why))
    return found


def _obstacle(contrast: Contrast, better: Better | None) -> Message | None:
    if contrast.ratio is None:
        return message("compare.missing")
    if not contrast.ratio.has_interval:
        return message("compare.single")
    return None if better else message("compare.no_direction")


def word_of(place: Place, better: Better | None) -> Word:
    if place == "within":
        return "same"
    if place == "undecided":
        return "undecided"
    is_good = (place == "above") == (better in ("faster", "higher"))
    if better in ("faster", "quicker"):
        return "faster" if is_good else "slower"
    return "better" if is_good else "worse"

"""MFU cells of published pages: recomputed from the throughput beside them, by every formula that pages use."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from flagperf import units
from flagperf.messages import message
from flagperf.pages.cells import PRECISION_DIFFERS
from flagperf.pages.finding import PageFinding, Recomputed, ResultContext, finding
from flagperf.pages.quantities import Quantity
from flagperf.pages.results import ResultRow
from flagperf.pages.words import words
from flagperf.plausibility.row_checks import SHARE_NOT_POSITIVE
from flagperf.plausibility.rules import Rule, explaining_row
from flagperf.plausibility.run_checks import ABOVE_PEAK, MFU_DOES_NOT_FOLLOW, TF32_CALLED_FP32, UTILISATION_OVER_100
from flagperf.spec import Manifest, PublishedPages

FACTORS = {"exact-infer": 2, "exact-lora": 4, "exact": 6}
"""The case's formula -> FLOPs per parameter and token: forward 2, with gradients of inputs 4, and of weights 6."""

COMPUTE_ROWS = ("fp32", "tf32", "fp16", "bf16")
ROWS_OF = {"amp": ("bf16", "fp16"), "amp-bf16": ("bf16",), "amp-fp16": ("fp16",)}
"""Peak rows of precisions that pages write; others are rows themselves."""

RATES = (("token/p/s", True), ("p_core", False), ("p_infer_core", False))
"""Columns that MFU may come from, and whether they are of one device."""


class Formula(msgspec.Struct, frozen=True):
    """One way to compute it."""

    factor: int
    row: str
    peak: float
    share: float
    is_own: bool
    """By the case's own factor, over the peak of the row's own precision."""


MFU_WITHOUT_THROUGHPUT = Rule(
    "mfu_without_throughput",
    of=("page",),
    effect="reported",
    published="an MFU of 36.2 % without a throughput: training/metax/llama2_7b_finetune-pytorch/README.md",
)


def check_mfu(context: ResultContext) -> Iterator[PageFinding | Recomputed]:
    for row in context.page.table.rows:
        yield from _outside(row)
    pages = context.manifest.published_pages if context.manifest else None
    if context.manifest is None or pages is None:
        return
    for row in context.page.table.rows:
        rate = tokens_per_device(context, row, pages)
        cell = row.cells.get("mfu")
        printed = cell.quantity if cell is not None and not cell.is_empty else None
        if cell is not None and printed is not None:
            if rate is None:
                yield finding(MFU_WITHOUT_THROUGHPUT, row.line, "lint.mfu_without_throughput", mfu=cell.text)
            elif not context.page.says(words().own_formula):
                yield from _recompute(context, row, cell.text, printed, rate, context.manifest, pages)
        if rate is not None and pages.flops is not None:
            yield from _too_fast(context, row, rate, pages.flops)


def _outside(row: ResultRow) -> Iterator[PageFinding]:
    """A share of zero or less, or of more than one. Up to 100, a number without a unit may be in per cent."""
    cell, share = row.cells.get("mfu"), row.amount("mfu")
    if cell is None or share is None or cell.quantity is None:
        return
    if share <= 0:
        yield finding(SHARE_NOT_POSITIVE, row.line, "lint.share_not_positive", what="MFU", share=cell.text)
    elif share > (100 if not cell.quantity.unit else 1):
        params = {"metric": "MFU", "share": cell.text}
        yield finding(UTILISATION_OVER_100, row.line, "doubt.utilisation_over_100", **params)


def tokens_per_device(context: ResultContext, row: ResultRow, pages: PublishedPages) -> float | None:
    for column, is_per_device in RATES:
        value = row.amount(column)
        if value is None:
            continue
        if is_per_device:
            return value
        devices = context.devices_of(row)
        return value * pages.tokens_per_sample / devices if devices else None
    return None


def _recompute(
    context: ResultContext,
    row: ResultRow,
    text: str,
    printed: Quantity,
    rate: float,
    manifest: Manifest,
    pages: PublishedPages,
) -> Iterator[PageFinding | Recomputed]:
    formulas = list(_formulas(context, row, rate, manifest, pages))
    scale = 100.0 if printed.kind == "share" else 1.0
    holding = sorted((each for each in formulas if printed.is_printed_of(each.share * scale)), key=_preference)
    params = {"mfu": text, "rate": f"{rate:g}", "parameters": f"{pages.nominal_parameters:.4g}"}
    if holding:
        best = holding[0]
        computed = {"share": f"{best.share:.2%}", "factor": best.factor, "row": best.row}
        peak = units.teraflops(best.peak)
        yield Recomputed(text, row.line, message("lint.mfu_holds", peak=peak, **computed, **params))
        own = _own_rows(context.precision_of(row))
        if own and not any(each.row in own for each in holding):
            said = {"precision": context.precision_of(row), "row": best.row, "peak": peak}
            yield finding(PRECISION_DIFFERS, row.line, "lint.mfu_of_other_precision", mfu=text, **said)
    elif formulas:
        nearest = min(formulas, key=lambda each: abs(each.share * scale - printed.value))
        computed = {"share": f"{nearest.share:.2%}", "factor": nearest.factor, "row": nearest.row}
        peak = units.teraflops(nearest.peak)
        yield finding(MFU_DOES_NOT_FOLLOW, row.line, "lint.mfu_does_not_follow", peak=peak, **computed, **params)


def _preference(formula: Formula) -> tuple[bool, float]:
    return not formula.is_own, formula.peak


def _formulas(
    context: ResultContext, row: ResultRow, rate: float, manifest: Manifest, pages: PublishedPages
) -> Iterator[Formula]:
    own_rows, natural = _own_rows(context.precision_of(row)), FACTORS.get(manifest.mfu_formula or "", 0)
    for name, peak in _peaks(context, row).items():
        for factor in sorted(set(FACTORS.values())):
            share = rate * factor * pages.nominal_parameters / peak
            yield Formula(factor, name, peak, share, factor == natural and name in own_rows)


def _peaks(context: ResultContext, row: ResultRow) -> dict[str, float]:
    """Of the row's card; nothing where cards that it may mean differ."""
    found: dict[str, set[float]] = {}
    for card in context.cards_of(row):
        for name in COMPUTE_ROWS:
            if name in card.peaks:
                found.setdefault(name, set()).add(card.peaks[name])
    return {name: peaks.pop() for name, peaks in found.items() if len(peaks) == 1}


def _own_rows(precision: str) -> tuple[str, ...]:
    return ROWS_OF.get(precision, (precision,) if precision in COMPUTE_ROWS else ())


def _too_fast(context: ResultContext, row: ResultRow, rate: float, flops: int) -> Iterator[PageFinding]:
    """Faster than the peak of the precision that the row names."""
    peaks, own = _peaks(context, row), _own_rows(context.precision_of(row))
    own_peaks = [peaks[name] for name in own if name in peaks]
    if not own_peaks or rate * flops <= max(own_peaks):
        return
    params = {"rate": units.teraflops(rate * flops), "peak": units.teraflops(max(own_peaks)), "precision": own[0]}
    if own[0] == "fp32" and explaining_row(rate * flops, "fp32", peaks) == "tf32":
        other = units.teraflops(peaks["tf32"])
        yield finding(TF32_CALLED_FP32, row.line, "doubt.tf32_called_fp32", other=other, **params)
    else:
        yield finding(ABOVE_PEAK, row.line, "doubt.above_peak", **params)

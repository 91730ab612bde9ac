"""What `pages lint` says of a page, and the rules that result pages and hardware pages share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from flagperf import units
from flagperf.messages import Message, message
from flagperf.plausibility.rules import Rule, explaining_row
from flagperf.plausibility.run_checks import ABOVE_PEAK, TF32_CALLED_FP32


class PageFinding(msgspec.Struct, frozen=True):
    rule: str
    """The name of a rule (flagperf.plausibility)."""
    line: int
    message: Message


class Recomputed(msgspec.Struct, frozen=True):
    """A cell that follows from others."""

    cell: str
    line: int
    message: Message


def finding(rule: Rule, line: int, code: str, /, **params: object) -> PageFinding:
    return PageFinding(rule.name, line, message(code, **params))


def page_rule(name: str, published: str, **limits: float) -> Rule:
    """Return a rule for published pages alone. `published` is the mistake that it comes from."""
    return Rule(name, of=("page",), effect="reported", published=published, limits=limits)


EMPTY_CELLS = page_rule(
    "empty_cells", "27 of the 72 result cells of five pages: training/dcu/glm-pytorch/README.md and others"
)
UNREAD_CELL = page_rule("unread_cell", "14.59.0W")
PRECISION_DIFFERS = page_rule(
    "precision_differs",
    "fp32 in the general table, fp16 in the row: training/nvidia/llama2_7b_finetune-pytorch/README.md; "
    "pages of FP16 and INT8 headed BF16: base/benchmarks/computation-FP16/iluvatar/BI150/README.md",
)
CARD_COUNT = page_rule(
    "card_count", "two machines of 8 cards, 2x8, called 8 cards: training/nvidia/distilbert-pytorch/README.md"
)


def above_peak(
    line: int, rate: float, precision: str, peak: float | None, peaks: Mapping[str, float]
) -> Iterator[PageFinding]:
    """Yield a finding if a rate is above the peak of its precision. For fp32, TF32 may explain it.

    `rate` and `peak` are in FLOP/s; `peaks` has those of all precisions that are known.
    """
    if peak is None or rate <= peak:
        return
    params = {"rate": units.teraflops(rate), "peak": units.teraflops(peak), "precision": precision}
    if precision == "fp32" and explaining_row(rate, precision, peaks) == "tf32":
        other = units.teraflops(peaks["tf32"])
        yield finding(TF32_CALLED_FP32, line, "doubt.tf32_called_fp32", other=other, **params)
    else:
        yield finding(ABOVE_PEAK, line, "doubt.above_peak", **params)

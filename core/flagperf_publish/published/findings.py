"""What `pages lint` says of a page."""

from __future__ import annotations

import msgspec

from flagperf.messages import Message, message
from flagperf.plausibility.rules import Rule


class PageFinding(msgspec.Struct, frozen=True):
    rule: str
    """The name of one (flagperf.plausibility)."""
    line: int
    message: Message


class Recomputed(msgspec.Struct, frozen=True):
    """A cell that holds: it follows from others."""

    cell: str
    line: int
    message: Message


def finding(rule: Rule, line: int, code: str, /, **params: object) -> PageFinding:
    return PageFinding(rule.name, line, message(code, **params))


# Checks of the cells of a page of results: empty, unread, out of order, not what the page or the case says.


EMPTY_CELLS = Rule(
    "empty_cells",
    of=("page",),
    effect="reported",
    published="27 of the 72 result cells of five pages: training/dcu/glm-pytorch/README.md and others",
)

UNREAD_CELL = Rule(
    "unread_cell",
    of=("page",),
    effect="reported",
    published="14.59.0W",
)

PRECISION_DIFFERS = Rule(
    "precision_differs",
    of=("page",),
    effect="reported",
    published=(
        "fp32 in the general table, fp16 in the row: training/nvidia/llama2_7b_finetune-pytorch/README.md; "
        "pages of FP16 and INT8 headed BF16: base/benchmarks/computation-FP16/iluvatar/BI150/README.md"
    ),
)

# Checks of whose card a page is about, and of how many.


CARD_COUNT = Rule(
    "card_count",
    of=("page",),
    effect="reported",
    published="two machines of 8 cards, 2x8, called 8 cards: training/nvidia/distilbert-pytorch/README.md",
)

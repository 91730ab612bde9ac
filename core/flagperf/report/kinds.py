"""What reports do differently for a training and an inference case. Nothing else in this package asks for the kind; the
texts have a wording per kind where one is needed (texts.py)."""

from __future__ import annotations

import msgspec


class Kind(msgspec.Struct, frozen=True):
    sections: tuple[str, ...]
    """Of a page, in their order, by the names of page.SECTIONS."""
    speeds: tuple[str, ...]
    """Throughputs on the card of a run."""
    timed: str
    """The metric that says how steps were timed."""


RESULTS = ("results", "batch_sizes", "general", "performance", "published", "notes")

KINDS = {
    "training": Kind(
        sections=("downloads", "subject", "environment", "strategies", *RESULTS),
        speeds=("p_whole", "p_train", "p_core", "token/p/s"),
        timed="p_core",
    ),
    "inference": Kind(
        sections=("dataset", "weights", "machine", "strategies", "environment", "engine", *RESULTS),
        speeds=("p_infer_whole", "p_infer_core", "p_infer_padded"),
        timed="p_infer_core",
    ),
}

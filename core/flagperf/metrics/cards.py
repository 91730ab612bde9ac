"""How cards and what is missing of them are named."""

from __future__ import annotations

from flagperf.messages import Message, has_text, message
from flagperf.metrics.finding import named

DeviceKey = tuple[int, str]
"""Node index and device id. The id alone is ambiguous: PCI addresses of two nodes may be equal."""


def card_name(card: DeviceKey) -> Message:
    return message("name.of_node", what=named("device", [card[1]]), node=card[0])


def missing_words(text: str) -> Message | str:
    """A probe's reason for a missing figure: a code in table [missing] of the message catalogue, or free text."""
    return message(f"missing.{text}") if has_text(f"missing.{text}") else text

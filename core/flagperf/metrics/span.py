"""Span: from one moment to another, on one clock."""

from __future__ import annotations

import msgspec


class Span(msgspec.Struct, frozen=True):
    began_ns: int
    ended_ns: int

    @property
    def length_ns(self) -> int:
        return self.ended_ns - self.began_ns

    def clipped(self, to: Span) -> Span:
        """The part inside `to`, with length 0 if they do not overlap."""
        began_ns = min(max(self.began_ns, to.began_ns), to.ended_ns)
        return Span(began_ns, max(began_ns, min(self.ended_ns, to.ended_ns)))

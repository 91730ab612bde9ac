"""Span: from one moment to another, on one clock."""

from __future__ import annotations

import msgspec


class Span(msgspec.Struct, frozen=True):
    began_ns: int
    ended_ns: int

    @property
    def length_ns(self) -> int:
        return self.ended_ns - self.began_ns

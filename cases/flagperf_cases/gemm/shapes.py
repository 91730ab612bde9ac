"""Which products are measured: the shapes of the configuration."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from flagperf.errors import BadInput


class Shape(msgspec.Struct, frozen=True):
    """C (m x n) = A (m x k) B (k x n)."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


def read_shape(text: str) -> Shape:
    if not re.fullmatch(r"[1-9]\d{0,6}x[1-9]\d{0,6}x[1-9]\d{0,6}", text):
        raise BadInput(f"gemm: {text!r} is no shape; write MxNxK, for example 8192x8192x8192")
    return Shape(*map(int, text.split("x")))


def planned_shapes(values: dict[str, Any]) -> dict[str, list[Shape]]:
    """Class of shapes -> the shapes, each in the first class that has it. The first class has the one that results are
    compared by."""
    given = values["gemm"]
    texts = {"headline": [given["headline"]], "standard": given["shapes"], "tuned": given["tuned_shapes"]}
    classes: dict[Shape, str] = {}
    for kind, of_kind in texts.items():
        for text in of_kind:
            classes.setdefault(read_shape(text), kind)
    return {kind: [shape for shape, its_kind in classes.items() if its_kind == kind] for kind in texts}

"""Precision is one word with one meaning."""

from __future__ import annotations

import msgspec

from flagperf.errors import unknown_name


class Precision(msgspec.Struct, frozen=True):
    """What a precision word stands for. `peak_row` is the row of the vendor's peak table that MFU divides by."""

    name: str
    """What users type: fp32, tf32, fp16, bf16, amp-fp16 or amp-bf16. A case whose rows have a precision each has
    `per-row`, which needs nothing of the adapter."""
    storage: str
    """Of weights in the model."""
    compute: str
    """Of matrix products."""
    master_weights: str
    """Of the weights that the optimizer updates."""
    peak_row: str
    """The row of the vendor's peak table that MFU divides by."""

    @property
    def is_per_row(self) -> bool:
        return self.name == "per-row"

    @property
    def autocast(self) -> str | None:
        """The autocast dtype, where compute differs from storage by autocast."""
        return self.compute if self.name.startswith("amp-") else None


PRECISIONS: dict[str, Precision] = {
    row[0]: Precision(*row)
    for row in (
        ("fp32", "float32", "float32", "float32", "fp32"),
        ("tf32", "float32", "tf32", "float32", "tf32"),
        ("fp16", "float16", "float16", "float32", "fp16"),
        ("bf16", "bfloat16", "bfloat16", "bfloat16", "bf16"),
        ("amp-fp16", "float32", "float16", "float32", "fp16"),
        ("amp-bf16", "float32", "bfloat16", "float32", "bf16"),
        ("per-row", "", "", "", ""),
    )
}


def precision(name: str) -> Precision:
    try:
        return PRECISIONS[name]
    except KeyError:
        raise unknown_name("precision", name, PRECISIONS) from None

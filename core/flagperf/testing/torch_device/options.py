"""Faults and limits that a test asks of the device: FLAGPERF_TEST_DEVICE="float64=no,error_at=500"."""

from __future__ import annotations

import os

import msgspec

from flagperf.errors import BadInput

VARIABLE = "FLAGPERF_TEST_DEVICE"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operators are counted from 1, from the first that the process runs on the device."""

    float64: bool = True
    """False: a tensor of float64 on the device raises, as on cards that have no such units."""

    pinned: bool = True
    """False: memory of the host cannot be pinned for the device."""

    first_seconds: float = 0.0
    """Extra time in the queue at the first matrix product, as where a kernel is compiled."""

    error_at: int = 0
    """The operator that breaks the device. As on a card, the host learns of it at the next synchronisation."""

    hang_at: int = 0
    """The operator that never finishes: the next synchronisation does not return."""

    rank: int = 0
    """The local rank on which `error_at` and `hang_at` apply."""


def read_options(text: str | None = None) -> Options:
    text = os.environ.get(VARIABLE, "") if text is None else text
    pairs = [word.partition("=") for word in text.split(",") if word.strip()]
    values = {name.strip(): _WORDS.get(value.strip(), value.strip()) for name, _, value in pairs}
    try:
        return msgspec.convert(values, Options, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(Options.__struct_fields__)
        raise BadInput(f"{VARIABLE}={text!r}: {error}; known are {known}, as in error_at=500,float64=no") from None


_WORDS = {"yes": "true", "no": "false"}

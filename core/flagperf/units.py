"""One formatter per type of number, so that all reports print the same quantity in the same way."""

from __future__ import annotations

import math
import signal
from typing import Literal

GIB = 1 << 30
SECOND_NS = 1_000_000_000

Unit = Literal[
    "TFLOPS",
    "TOPS",
    "GB/s",
    "samples/s",
    "tokens/s",
    "requests/s",
    "GiB",
    "MiB",
    "s",
    "ms",
    "us",
    "share",
    "count",
    "W",
    "J",
    "kJ",
]
"""Units of the figures that a case takes from its rows."""

SCALES: dict[Unit, float] = {
    **dict.fromkeys(("samples/s", "tokens/s", "requests/s", "s", "share", "count", "W", "J"), 1.0),
    "TFLOPS": 1e12,
    "TOPS": 1e12,
    "GB/s": 1e9,
    "GiB": float(GIB),
    "MiB": float(1 << 20),
    "ms": 1e-3,
    "us": 1e-6,
    "kJ": 1e3,
}
"""Unit -> what a recorded number of operations, bytes, seconds, watts or joules is divided by."""


def gib(num_bytes: int | float) -> str:
    return f"{num_bytes / GIB:.1f}"


def mebibytes(num_bytes: int | float) -> str:
    """A size of files."""
    return f"{num_bytes / (1 << 20):,.1f} MiB"


def memory_cell(used_bytes: int | float, total_bytes: int | float) -> str:
    return f"{gib(used_bytes)}/{gib(total_bytes)}"


def one_decimal(value: float) -> str:
    return f"{value:.1f}"


def per_second(value: float) -> str:
    """A throughput: one decimal, or three significant digits below 10."""
    return _three_digits(value) if abs(value) < 10 else one_decimal(value)


def tokens_per_second(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def fraction(value: float) -> str:
    return f"{value:.3f}"


def loss(value: float) -> str:
    """Print at most four decimals, without trailing zeros."""
    return f"{value:.4f}".rstrip("0").rstrip(".")


def percent(value: float) -> str:
    """A fraction as percent with one decimal, or with three significant digits below 1 %."""
    return f"{_three_digits(value * 100)}%" if abs(value) < 0.01 else f"{value * 100:.1f}%"


def relative_error(value: float) -> str:
    """A fraction as percent with four significant digits."""
    return f"{value * 100:.4g}%"


def count(value: int | float) -> str:
    return f"{value:,.0f}"


def teraflops(flops_per_second: float) -> str:
    return four_digits(flops_per_second / 1e12)


def four_digits(value: float) -> str:
    """Four significant digits; numbers with up to seven before the point have all of those."""
    return f"{value:.0f}" if 9999.5 <= abs(value) < 1e7 else f"{value:.4g}"


def kilojoules(joules: float) -> str:
    return f"{joules / 1000:,.1f}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def setting(value: object) -> str:
    """A configuration value as on pages: floats in the shortest form, small ones in scientific notation (1.5e-4)."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def seconds(value: float) -> str:
    """A human-readable duration: 40 ms, 8.2 s, 2 min 05 s, 3 h 04 min."""
    if 0 < value < 0.1:
        return f"{value * 1000:.{0 if value >= 0.01 else 1}f} ms"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def exit_status(code: int) -> str:
    """Say how a process ended, by its return code: exit code 3, killed by SIGTERM."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", often because the machine ran out of memory" if -code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"


def _three_digits(value: float) -> str:
    """Three significant digits without trailing zeros, but never without a decimal: 0.0312, 5.2, 9.0."""
    if value == 0:
        return "0.0"
    num_decimals = max(1, 2 - math.floor(math.log10(abs(value))))
    digits = f"{value:.{num_decimals}f}".rstrip("0")
    return f"{digits}0" if digits.endswith(".") else digits

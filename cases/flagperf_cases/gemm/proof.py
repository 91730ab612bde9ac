"""Proves on the timed output that a product was computed in the precision of its label.

The error (rms of the difference over rms of the result, NRMSE) is against float64 on the host, of 64 rows chosen at
random. Each precision has a range of its own. Where ranges overlap, a probe is multiplied by the same call: a number
just above 1, times the identity, comes back exactly only in formats that have a bit for it.
"""

from __future__ import annotations

import math

import torch

from flagperf.worker import WrongOutput
from flagperf_cases.gemm.products import Multiplied, Product

NUM_ROWS = 64

ACCEPTED = {
    "fp32": (0.0, 5e-5),
    "tf32": (1e-4, 1.5e-3),
    "fp16": (0.0, 5e-4),
    "bf16": (0.0, 3e-3),
    "fp8": (0.0, 1e-2),
}
"""Precision -> lowest and highest NRMSE. It does not depend on the number of terms of a sum."""

ACC16_LOW, ACC16_ROOT = 5e-4, 2e-4
"""Of sums that are kept in fp16: the lowest NRMSE, and the highest over the root of the number of terms. One addition
after the other has 1.5e-4, in blocks of 16 it is 0.4e-4."""

PROBES = {"fp32": (1 + 2.0**-12, "exact"), "tf32": (1 + 2.0**-12, "rounded"), "fp16_acc16": (1 + 2.0**-10, "exact")}
"""Precision -> the number, and what becomes of it."""

MISTAKEN = {"fp32": ("tf32", "bf16"), "tf32": ("fp32", "bf16"), "fp16": ("fp16_acc16",)}
"""Precision -> what such operands are multiplied in instead, the likeliest first."""

FP64_ERROR = 1e-13


def prove(precision: str, product: Product, last: Multiplied) -> dict[str, str]:
    """The facts of the proof. Raises WrongOutput."""
    if not bool(torch.isfinite(last.output.float()).all()):
        raise WrongOutput("the output has values that are not finite")
    if precision == "int8":
        return _exact(product, last)
    if precision == "fp64":
        return _nearly_exact(product, last)
    error, num_terms = _error(product, last), last.a.shape[1]
    low, high = _accepted(precision, num_terms)
    facts = {"nrmse": f"{error:.3g}", "accepted": f"{low:g} to {high:.3g}"}
    is_right = low <= error <= high
    if precision in PROBES:
        number, expected = PROBES[precision]
        facts["probe"] = _probe(product, number)
        is_right = is_right and facts["probe"] == expected
    if not is_right:
        shown = ", ".join(f"{name} {value}" for name, value in facts.items())
        raise WrongOutput(f"it was not computed in {precision} ({shown}){_likely(precision, error, num_terms)}")
    return facts


def _accepted(precision: str, num_terms: int) -> tuple[float, float]:
    if precision == "fp16_acc16":
        return ACC16_LOW, ACC16_ROOT * math.sqrt(num_terms)
    return ACCEPTED[precision]


def _likely(precision: str, error: float, num_terms: int) -> str:
    for name in MISTAKEN.get(precision, ()):
        low, high = _accepted(name, num_terms)
        if low <= error <= high:
            return f"; the error is that of {name}"
    return ""


def _chosen_rows(last: Multiplied) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randperm(last.a.shape[0], generator=generator)[:NUM_ROWS]


def _some_rows(product: Product, last: Multiplied) -> tuple[torch.Tensor, torch.Tensor]:
    """The chosen rows of the output and of the reference, in float64 on the host."""
    rows = _chosen_rows(last)
    wanted = (_double(last.a.cpu()[rows]) @ _double(product.b.cpu())) * product.scale
    return _double(last.output.cpu()[rows]), wanted


def _double(values: torch.Tensor) -> torch.Tensor:
    """Some formats convert only through float32, which holds them exactly."""
    return (values.float() if values.element_size() == 1 else values).double()


def _error(product: Product, last: Multiplied) -> float:
    got, wanted = _some_rows(product, last)
    return float((got - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())


def _exact(product: Product, last: Multiplied) -> dict[str, str]:
    got, wanted = _some_rows(product, last)
    if not torch.equal(got, wanted):
        raise WrongOutput(f"{int((got != wanted).sum())} of {got.numel()} integers are wrong")
    return {"check": f"{got.numel()} elements exact"}


def _nearly_exact(product: Product, last: Multiplied) -> dict[str, str]:
    """Against sums that round once: the halves of float64 operands have exact products."""
    rows = _chosen_rows(last)
    columns = torch.randperm(product.b.shape[1], generator=torch.Generator().manual_seed(2))[: len(rows)]
    a, b, got = last.a.cpu(), product.b.cpu(), last.output.cpu()
    worst, scale = 0.0, 0.0
    for row, column in zip(rows.tolist(), columns.tolist(), strict=False):
        wanted = _exact_dot(a[row], b[:, column])
        worst, scale = max(worst, abs(float(got[row, column]) - wanted)), max(scale, abs(wanted))
    error = worst / scale
    facts = {"error": f"{error:.3g}", "accepted": f"0 to {FP64_ERROR:g}"}
    if error > FP64_ERROR:
        raise WrongOutput(f"it was not computed in fp64 (error {error:.3g}, accepted up to {FP64_ERROR:g})")
    return facts


def _exact_dot(x: torch.Tensor, y: torch.Tensor) -> float:
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    terms = torch.cat([x_high * y_high, x_high * y_low, x_low * y_high, x_low * y_low])
    return math.fsum(terms.tolist())


def _halves(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """26 leading bits, and the rest."""
    shifted = values * (2.0**27 + 1)
    high = shifted - (shifted - values)
    return high, values - high


def _probe(product: Product, number: float) -> str:
    """Overwrites the operands."""
    product.numbers.fill_(number)
    product.b.zero_()
    product.b.diagonal().fill_(1.0)
    size = min(product.b.shape)
    returned = product.call().output[:, :size].cpu()
    return "exact" if bool((returned == number).all()) else "rounded"

"""Prove on the card that fp32 and tf32 are what they are called, before anything is measured.

A build may ignore the switches, or round in fp32 by default where nobody looks for one. Only products of matrices are
tried: a convolution would load another library of the vendor, whose memory would be counted as the case's.
"""

from __future__ import annotations

from flagperf.api import Precision
from flagperf.errors import Unsupported
from flagperf.worker.device_memory import forget_memory

ROUNDS = 2.0**-16
"""A relative error above this is that of a format with fewer bits, and not fp32 that is put together from such."""


def prove_precision(precision: Precision, torch_device: str, vendor: str) -> None:
    if precision.compute not in ("tf32", "float32"):
        return
    import torch

    error = _matmul_error(torch_device)
    this_torch = f"this torch ({torch.__version__})"
    if precision.compute == "tf32" and error < ROUNDS:
        raise Unsupported(
            f"tf32 is switched on, but {this_torch} multiplies in fp32 on {vendor} cards: "
            "the result would be mislabelled; choose fp32"
        )
    if precision.compute == "float32" and not error < ROUNDS:
        raise Unsupported(
            f"fp32 was asked for, but {this_torch} multiplies with a relative error of {error:.1g} on "
            f"{vendor} cards, as TF32 does: the result would be mislabelled. Name the switch in the adapter's "
            "tf32_switches, or choose another precision"
        )


def _matmul_error(torch_device: str) -> float:
    """The largest relative error of a product with the identity: 0 in fp32, up to 2**-11 in TF32, 2**-12 in HF32.
    The matrices are large enough for the kernels that real work uses."""
    import torch

    size = 1024
    values = torch.linspace(1, 2, size * size).reshape(size, size)
    product = torch.matmul(values.to(torch_device), torch.eye(size).to(torch_device)).cpu()
    forget_memory(torch_device)
    return float(((product - values) / values).abs().max())

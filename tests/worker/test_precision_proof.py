"""fp32 and tf32 are what they are called, or the run ends as unsupported."""

from __future__ import annotations

from typing import Any

import pytest

from flagperf.api import PRECISIONS
from flagperf.errors import Unsupported
from flagperf.worker.__main__ import prove_precision

pytestmark = pytest.mark.run


def rounding_to(bits: int) -> Any:
    """A product whose factors are rounded to so many bits after the point first, as matrix units do."""
    import torch

    exact = torch.matmul

    def rounded(matrix: Any) -> Any:
        return torch.round(matrix * 2**bits) / 2**bits

    return lambda left, right: exact(rounded(left), rounded(right))


def test_tf32_that_changes_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, which has none; then with a product that rounds as such cards do."""
    import torch

    with pytest.raises(Unsupported, match="multiplies in fp32 on acme cards"):
        prove_precision(PRECISIONS["tf32"], "cpu", "acme")
    monkeypatch.setattr(torch, "matmul", rounding_to(10))
    prove_precision(PRECISIONS["tf32"], "cpu", "acme")


@pytest.mark.parametrize(("bits", "is_fp32"), [(7, False), (10, False), (11, False), (22, True), (23, True)])
def test_fp32_that_rounds_is_refused_and_never_measured(
    bits: int, is_fp32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bf16, TF32 and HF32 do; fp32 that a card puts together from two parts is fp32."""
    import torch

    monkeypatch.setattr(torch, "matmul", rounding_to(bits))
    if is_fp32:
        prove_precision(PRECISIONS["fp32"], "cpu", "acme")
    else:
        with pytest.raises(Unsupported, match=r"fp32 was asked for, but .* Name the switch"):
            prove_precision(PRECISIONS["fp32"], "cpu", "acme")
    prove_precision(PRECISIONS["amp-bf16"], "cpu", "acme")

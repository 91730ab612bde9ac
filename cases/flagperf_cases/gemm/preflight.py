"""Checks the values before any worker starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name
from flagperf_cases.gemm.shapes import planned_shapes

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp16_acc16")


def check_files(_data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    planned_shapes(values)
    if not values["gemm"]["precisions"]:
        raise BadInput(f"gemm.precisions is empty; name some of {', '.join(PRECISIONS)}")
    for name in values["gemm"]["precisions"]:
        if name not in PRECISIONS:
            raise unknown_name("precision of gemm", name, PRECISIONS)
    return []

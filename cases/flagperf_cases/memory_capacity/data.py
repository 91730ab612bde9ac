"""Check how much memory may be taken. Importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf_cases.sizes import MIB


def check_files(_data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    limit = values["memory_capacity"]["limit_bytes"]
    if 0 < limit < MIB:
        raise BadInput(
            f"memory_capacity.limit_bytes={limit} is less than the smallest chunk; write {MIB} or more, or 0"
        )
    return []

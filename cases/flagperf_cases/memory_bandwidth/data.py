"""Check which patterns are measured, and with which sizes. Importable without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name
from flagperf_cases.sizes import read_size, read_sizes

PATTERNS = ("copy", "read", "write", "triad")


def check_files(_data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    given = values["memory_bandwidth"]
    read_size("memory_bandwidth.headline", given["headline"])
    read_sizes("memory_bandwidth.sizes", given["sizes"])
    if not given["patterns"]:
        raise BadInput(f"memory_bandwidth.patterns is empty; name some of {', '.join(PATTERNS)}")
    for name in given["patterns"]:
        if name not in PATTERNS:
            raise unknown_name("pattern of memory_bandwidth", name, PATTERNS)
    return []

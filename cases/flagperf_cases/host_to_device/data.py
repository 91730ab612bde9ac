"""Choose and check which transfers are measured: directions, memories and sizes of the configuration. Importable
without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name
from flagperf_cases.sizes import read_size, read_sizes

KNOWN = {"directions": ("h2d", "d2h", "both"), "memories": ("pinned", "pageable")}


def check_files(_data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    given = values["host_to_device"]
    read_size("host_to_device.headline", given["headline"])
    read_sizes("host_to_device.sizes", given["sizes"])
    for key, known in KNOWN.items():
        if not given[key]:
            raise BadInput(f"host_to_device.{key} is empty; name some of {', '.join(known)}")
        for name in given[key]:
            if name not in known:
                raise unknown_name(f"value of host_to_device.{key}", name, known)
    return []

"""Choose and check which messages are measured: operations, precisions and sizes of the configuration. Importable
without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import DataFile
from flagperf.errors import BadInput, unknown_name
from flagperf_cases.sizes import read_size, read_sizes


def check_files(_data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    planned_messages(values)
    return []


OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
PRECISIONS = ("fp32", "bf16")

LATENCY_BYTES = 64 << 10
"""Up to here the time of a message hardly depends on its size."""


class Message(msgspec.Struct, frozen=True):
    operation: str
    precision: str
    size: int
    """Bytes of the payload, before it is rounded to equal parts for all ranks."""
    kind: str
    """headline: what results are compared by; latency; sweep."""


def planned_messages(values: dict[str, Any]) -> list[Message]:
    given = values["collectives"]
    _check_names("collectives.operations", given["operations"], OPERATIONS)
    _check_names("collectives.precisions", given["precisions"], PRECISIONS)
    headline = read_size("collectives.headline", given["headline"])
    sizes = [size for size in read_sizes("collectives.sizes", given["sizes"]) if size != headline]
    kinds = {headline: "headline"} | {size: "latency" if size <= LATENCY_BYTES else "sweep" for size in sizes}
    return [
        Message(operation, precision, size, kind)
        for operation in given["operations"]
        for precision in given["precisions"]
        for size, kind in kinds.items()
    ]


def _check_names(key: str, names: list[str], known: tuple[str, ...]) -> None:
    if not names:
        raise BadInput(f"{key} is empty; name at least one of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise unknown_name(f"value of {key}", name, known)

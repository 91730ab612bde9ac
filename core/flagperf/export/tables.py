"""Lines as CSV, JSON lines and Parquet."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import msgspec

from flagperf.commands import pip_command
from flagperf.errors import MissingPart
from flagperf.escapes import safe_json
from flagperf.export.columns import Type
from flagperf.report.csv_text import csv_text, harmless

TABLE_SCHEMA = 1
"""Columns are added without a change of this number. Incremented when one is renamed or gets another meaning."""

ROWS_AT_ONCE = 20_000

Line = Mapping[str, Any]


def to_csv(columns: Mapping[str, Type], lines: Iterable[Line]) -> Iterator[str]:
    shown = ({name: _csv_cell(value) for name, value in line.items()} for line in lines)
    return csv_text(list(columns), shown)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return harmless(value) if isinstance(value, str) else value


def to_json_lines(lines: Iterable[Line]) -> Iterator[str]:
    return (f"{safe_json(msgspec.json.encode(line).decode())}\n" for line in lines)


def check_parquet() -> None:
    """Raises MissingPart without pyarrow."""
    _pyarrow()


def write_parquet(file: IO[bytes], columns: Mapping[str, Type], lines: Iterable[Line]) -> None:
    arrow, parquet = _pyarrow()
    types = {"text": arrow.string(), "integer": arrow.int64(), "real": arrow.float64(), "truth": arrow.bool_()}
    fields = [arrow.field(name, types[kind]) for name, kind in columns.items()]
    schema = arrow.schema(fields, metadata={"flagperf.table_schema": str(TABLE_SCHEMA)})
    left = iter(lines)
    with parquet.ParquetWriter(file, schema) as writer:
        while rows := list(itertools.islice(left, ROWS_AT_ONCE)):
            cells = {name: [_typed(kind, row.get(name)) for row in rows] for name, kind in columns.items()}
            writer.write_table(arrow.table(cells, schema=schema))


def _typed(kind: Type, value: Any) -> Any:
    return float(value) if kind == "real" and value is not None else value


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingPart(f"Parquet needs pyarrow: `{pip_command('install', 'flagperf[parquet]')}`") from None

"""Loss curves as files: a CSV table below `# name: value` lines, for spreadsheets, plotting tools and people.

    # flagperf loss curve 1
    # case: "llama2_70b"
    # run: "20260101T000000Z-llama2_70b-cpu-1x4-abc123"
    # steps: "1 to 100"
    # values.training.seed: 0
    step,loss,samples,remark
    1,10.373491,1024,
    2,,1024,training diverged: the loss of step 2 is not a finite number

Values are JSON. Losses are written with full precision, so that reading them back gives bitwise equal values. Only the
first line, the line `case` and the columns `step` and `loss` are required, so it is easy to convert a curve from
another program.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.bundle.bundle import read_bundle, read_record
from flagperf.errors import BadInput
from flagperf.files import read_regular
from flagperf.metrics.alignment import CurvePoint, LossCurve, loss_curve
from flagperf.metrics.entry import Absent
from flagperf.metrics.observed import Observed
from flagperf.text import flagperf_command

CURVE_SCHEMA = 1
"""Incremented when the file format changes in a way that an older reader would misread."""

TITLE = "# flagperf loss curve "
FIELDS = tuple(name for name in LossCurve.__struct_fields__ if name not in ("points", "values"))
COLUMNS = ("step", "loss", "samples", "remark")
MAX_CURVE_BYTES = 256 << 20


def curve_of_run(path: Path) -> LossCurve:
    """Return the loss curve from the raw files of a bundle. Raise BadInput if there is none."""
    curve = find_curve(path)
    if isinstance(curve, Absent):
        raise BadInput(f"{path} has no loss curve: {curve.reason}, {curve.detail}")
    return curve


def find_curve(path: Path) -> LossCurve | Absent:
    """Return the loss curve from the raw files of a bundle, or the reason if there is none."""
    run = read_bundle(path).run
    return loss_curve(Observed(run.job, run.manifest, read_record(path)))


def curve_text(curve: LossCurve) -> str:
    fields = {name: getattr(curve, name) for name in FIELDS}
    fields["steps"] = f"{curve.first_step} to {curve.last_step}"
    fields |= {f"values.{key}": value for key, value in curve.values.items()}
    text = io.StringIO()
    text.write(f"{TITLE}{CURVE_SCHEMA}\n")
    text.writelines(f"# {name}: {msgspec.json.encode(value).decode()}\n" for name, value in fields.items())
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows((point.step, point.loss, point.samples, point.remark) for point in curve.points)
    return text.getvalue()


def read_curve(path: Path) -> LossCurve:
    try:
        lines = [line.rstrip("\r") for line in read_regular(path, MAX_CURVE_BYTES).decode("utf-8-sig").split("\n")]
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        lines = [""]
    if not lines[0].startswith(TITLE):
        writes = f"`{flagperf_command('runs', 'curve')} RUN > FILE` writes one"
        raise BadInput(f"{path} is neither a run nor a loss curve: its first line is not {TITLE + '1'!r}; {writes}")
    schema = lines[0].removeprefix(TITLE).strip()
    if schema != str(CURVE_SCHEMA):
        raise BadInput(f"{path} is a loss curve of schema {schema!r}, but this flagperf reads schema {CURVE_SCHEMA}")
    num_head = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    try:
        fields = _fields(lines[1:num_head])
        steps = fields.pop("steps", None)
        curve = msgspec.convert({**fields, "points": _points(lines[num_head:], num_head + 1)}, LossCurve)
        found = f"{curve.first_step} to {curve.last_step}"
        if steps not in (None, found):
            edited = "the file is truncated or edited"
            raise ValueError(f"the header says steps {steps}, but the table has {found}: {edited}")
    except (ValueError, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: {error}") from None
    return curve


# Problems are raised as ValueError that names the line. msgspec's ValidationError is a ValueError too.


def _fields(lines: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for number, line in enumerate(lines, start=2):
        name, colon, text = line.removeprefix("#").strip().partition(": ")
        group, key = (values, name.removeprefix("values.")) if name.startswith("values.") else (fields, name)
        if not colon or key in group:
            raise ValueError(f"line {number}: {line!r} is not `# name: value`, or the name is repeated")
        try:
            group[key] = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise ValueError(f"line {number}: {text!r} is not JSON; put strings in double quotes") from None
    unknown = sorted(set(fields) - {*FIELDS, "steps"})
    if unknown:
        known = ", ".join((*FIELDS, "steps", "values.KEY"))
        raise ValueError(f"unknown name {unknown[0]!r} above the table; known: {known}")
    return {**fields, "values": values}


def _points(lines: Sequence[str], first_line: int) -> list[CurvePoint]:
    rows = csv.reader(lines, strict=True)
    try:
        table = [(first_line + rows.line_num - 1, row) for row in rows if row]
    except csv.Error as error:
        raise ValueError(f"line {first_line + rows.line_num - 1}: {error}") from None
    if len(table) < 2:
        raise ValueError("there is no table of steps and losses")
    (number, columns), *body = table
    if not {"step", "loss"} <= set(columns) <= set(COLUMNS) or len(set(columns)) != len(columns):
        raise ValueError(f"line {number}: the columns are {','.join(columns)}; known: {','.join(COLUMNS)}")
    points: list[CurvePoint] = []
    for number, row in body:
        if len(row) != len(columns):
            raise ValueError(f"line {number} has {len(row)} cells for {len(columns)} columns")
        cells = {name: cell.strip() for name, cell in zip(columns, row, strict=True)}
        samples, remark = cells.get("samples", ""), cells.get("remark", "")
        try:
            step, loss = int(cells["step"]), float(cells["loss"]) if cells["loss"] else None
            point = CurvePoint(step, loss, int(samples) if samples else None, remark)
        except ValueError:
            raise ValueError(f"line {number}: {','.join(row)} does not match the columns {','.join(columns)}") from None
        if loss is not None and not math.isfinite(loss):  # other programs write nan if training diverged
            point = msgspec.structs.replace(point, loss=None, remark=remark or f"the loss is {loss}")
        points.append(point)
    for (number, _), before, point in zip(body[1:], points, points[1:], strict=False):
        if point.step != before.step + 1:
            raise ValueError(f"line {number}: step {point.step} comes after step {before.step}")
    return points

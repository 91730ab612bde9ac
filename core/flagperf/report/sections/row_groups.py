"""Rows of a run that measured the same on several devices, as one line of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from flagperf import units
from flagperf.metrics import MeasuredRow
from flagperf.report.document import Block, Bullets, Empty, Head, TableCell, Text, Value
from flagperf.report.texts import Lang, label, row_label, say
from flagperf.robust import median, standing_out

LEAST_SHARE = 0.03
"""A device is named only if it is slower than the median by more than this share."""


NAMED_AT_MOST = 5


class RowGroup(msgspec.Struct, frozen=True):
    """Equal name and labels, one row for each rank."""

    rows: tuple[MeasuredRow, ...]

    @property
    def name(self) -> str:
        return self.rows[0].name

    @property
    def labels(self) -> dict[str, str]:
        return self.rows[0].labels

    @property
    def measured(self) -> list[MeasuredRow]:
        return [row for row in self.rows if row.median is not None]

    @property
    def middle(self) -> MeasuredRow | None:
        """The row that stands for all: of a transfer the slowest rank's, which is as long as it takes; else that of the
        median device, and of two in the middle the one with more time, or with less of anything else."""
        ordered = sorted(self.measured, key=lambda row: row.median or 0.0, reverse=self.rows[0].unit != "s")
        if not ordered:
            return None
        return ordered[-1] if "bus_bytes" in ordered[0].work else ordered[len(ordered) // 2]

    @property
    def failed(self) -> list[MeasuredRow]:
        return [row for row in self.rows if row.median is None]

    @property
    def marks(self) -> tuple[str, ...]:
        """Those of all devices."""
        return tuple(dict.fromkeys(mark for row in self.measured for mark in row.marks))

    @property
    def slow_ranks(self) -> list[int]:
        """Those that stand out among more than two."""
        times = [row.median or 0.0 for row in self.measured]
        if len(times) < 3 or self.rows[0].unit != "s":
            return []
        return [self.measured[index].rank for index in standing_out(times, LEAST_SHARE * median(times))]


def missing_lines(groups: Sequence[RowGroup], lang: Lang) -> Iterator[Block]:
    """Where a line of a table has a value, though not of every device."""
    lines = [_missing_line(group, lang) for group in groups if group.measured and group.failed]
    if lines:
        yield Bullets(tuple(map(Text, lines)), label("some_missing", lang))


def _missing_line(group: RowGroup, lang: Lang) -> str:
    first = group.failed[0]
    return say(
        "missing_row",
        lang,
        row=" ".join(group.labels.values()),
        ranks=", ".join(str(row.rank) for row in group.failed[:NAMED_AT_MOST]),
        missing=len(group.failed),
        all=len(group.rows),
        status=first.status,
        problem=first.problem,
    )


def row_groups(rows: Iterable[MeasuredRow]) -> list[RowGroup]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[MeasuredRow]] = {}
    for row in rows:
        found.setdefault((row.name, tuple(row.labels.items())), []).append(row)
    return [RowGroup(tuple(group)) for group in found.values()]


# --- cells ----------------------------------------------------------------------------------------------------------


def time_cell(group: RowGroup) -> TableCell:
    """The value of the median device, in a unit that fits; or why there is none."""
    row = group.middle
    if row is None:
        failed = group.failed[0]
        return Empty(failed.status, failed.problem)
    if row.unit == "share":
        return Value(units.percent(row.median or 0), marks=group.marks)
    scale, unit = scaled(row)
    return Value(f"{units.four_digits((row.median or 0) / scale)} {unit}".strip(), marks=group.marks)


def interval_cell(group: RowGroup) -> Text:
    """Of a single device its interval, of several their range."""
    row = group.middle
    if row is None:
        return Text("")
    values = sorted(each.median or 0.0 for each in group.measured)
    if len(values) > 1:
        return Text(_range(row, values[0], values[-1]))
    return Text(_range(row, row.interval.low, row.interval.high)) if row.interval else Text("")


def _range(row: MeasuredRow, low: float, high: float) -> str:
    """In the unit of its value."""
    if row.unit == "share":
        return f"{units.percent(low)} - {units.percent(high)}"
    scale, _ = scaled(row)
    return f"{units.four_digits(low / scale)} - {units.four_digits(high / scale)}"


def scaled(row: MeasuredRow) -> tuple[float, str]:
    """What its value is divided by to be shown, and the unit then."""
    if row.unit == "bytes":
        return float(units.GIB), "GiB"
    return (1.0, row.unit) if row.unit != "s" or row.median is None else _seconds_scaled(row.median)


def time_text(seconds: float) -> str:
    scale, unit = _seconds_scaled(seconds)
    return f"{units.four_digits(seconds / scale)} {unit}"


def energy_text(joules: float) -> str:
    for scale, unit in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")):
        if joules >= scale:
            return f"{units.four_digits(joules / scale)} {unit}"
    return f"{units.four_digits(joules / 1e-9)} nJ"


def _seconds_scaled(seconds: float) -> tuple[float, str]:
    if seconds >= 1:
        return 1.0, "s"
    return (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "us")


def rate_cell(group: RowGroup, amount: str | None = None) -> Text:
    """Of one amount of work, else of the first that the row has."""
    row = group.middle
    return Text(rate_text(row, amount) if row else "")


RATES = (("flops", 1e12, "TFLOPS"), ("bus_bytes", 1e9, "GB/s"), ("bytes", 1e9, "GB/s"))


def rate_text(row: MeasuredRow, wanted: str | None = None) -> str:
    for amount, scale, unit in RATES:
        if row.work.get(amount) and row.median and wanted in (None, amount):
            shown = "TOPS" if row.limits.get(amount, "").startswith("int") else unit
            return f"{units.four_digits((row.rate(amount) or 0) / scale)} {shown}"
    return ""


def share_cell(group: RowGroup) -> Text:
    row = group.middle
    return Text("" if row is None or row.share is None else units.percent(row.share))


def label_cell(group: Labelled, name: str) -> Text:
    """Sizes in the unit that they are whole numbers of."""
    text = group.labels.get(name, "")
    if name != "bytes" or not text.isdecimal():
        return Text(text)
    size = int(text)
    scale, unit = next((each for each in SIZES if size and size % each[0] == 0), (1, "B"))
    return Text(f"{size // scale} {unit}")


SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Labelled(Protocol):
    @property
    def labels(self) -> dict[str, str]: ...


def label_heads(names: Sequence[str], lang: Lang) -> list[Head]:
    return [Head(row_label(name, lang)) for name in names]


def label_names(groups: Sequence[Labelled]) -> list[str]:
    """Labels that differ between the groups; the others say nothing in a table of theirs. At least one."""
    names = list(dict.fromkeys(name for group in groups for name in group.labels))
    told = [name for name in names if len({group.labels.get(name, "") for group in groups}) > 1]
    return told or names[:1]

"""Published values of single rows, beside what a run measured of the same."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flagperf.metrics import MeasuredRow
from flagperf.spec import PublishedRows
from flagperf.store.run import Run


class PublishedRow(msgspec.Struct, frozen=True):
    """One value, in the unit of the row."""

    row: str
    labels: dict[str, str]
    value: float
    vendor: str
    device: str
    source: str


class PublishedOf:
    """What was published of the rows of a run."""

    def __init__(self, run: Run) -> None:
        self._found = [each for table in run.manifest.published_rows for each in _lines(table)]
        card = run.job.device_model
        names = (card.model, card.short_name)
        self._found.sort(key=lambda each: each.vendor != run.job.vendor or each.device not in names)

    def of(self, row: MeasuredRow) -> PublishedRow | None:
        """On such a card, else on the first that has one."""
        return next((each for each in self._found if each.row == row.name and _fits(each.labels, row.labels)), None)


def _fits(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == text for name, text in wanted.items())


def _lines(table: PublishedRows) -> list[PublishedRow]:
    found = []
    for *texts, value in table.values:
        labels = {**table.where, **dict(zip(table.by, map(str, texts), strict=True))}
        source = table.source
        for name, text in labels.items():
            source = source.replace(f"{{{name}}}", text)
        found.append(PublishedRow(table.row, labels, float(value), table.vendor, table.device, source))
    return found

"""PageRuns: the runs of one page, in row order. Refuses runs that do not belong on the same page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import msgspec

from flagperf.api import PRECISIONS
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.messages import Lang, label, listed, say
from flagperf.metrics.alignment import LossCurve
from flagperf.report.wording import has_published_profile, is_published, layout, overrides, vendor_word
from flagperf.spec.manifest import Manifest

T = TypeVar("T", bound=Hashable)


class PageRuns(msgspec.Struct, frozen=True):
    runs: tuple[RecordedRun, ...]
    """Row n of the performance table is run n - 1."""
    manifest: Manifest
    lang: Lang
    reference: LossCurve | None = None
    """The loss curve that the runs are compared with."""
    published: bool | None = None
    """As the user asked. None: published results stand only beside runs of a published profile."""

    def mark(self, number: int) -> str:
        """Return `row 2` if the page has several rows, else nothing."""
        return say("this_row", self.lang, row=number) if len(self.runs) > 1 else ""

    def label(self, name: str) -> str:
        """Return the label in the language of the page and the wording of the case's kind."""
        return label(name, self.lang, KINDS[self.manifest.kind])

    def by_rows(self, texts: Sequence[str]) -> list[str]:
        """Merge one text per run into one line per distinct text. A text that applies to all rows names none."""
        return self.merged([[text] if text else [] for text in texts])

    def merged(self, texts: Sequence[Sequence[str]]) -> list[str]:
        """Merge any number of texts per run as `by_rows` does."""
        lines = []
        for text, rows in self._rows(texts).items():
            name = "one_row" if len(rows) == 1 else "some_rows"
            lines.append(say(name, self.lang, rows=self._listed(rows), text=text) if rows else text)
        return lines

    def values(self, values: Sequence[str]) -> str:
        """Merge one value per run into `4 (row 1), 1 (rows 2, 3)`, or `4` if all are equal."""
        return listed([self.with_rows(value, rows) for value, rows in self.rows_of(values).items()], self.lang)

    def with_rows(self, text: str, rows: list[int]) -> str:
        if not rows:
            return text
        return say("text_of_row" if len(rows) == 1 else "text_of_rows", self.lang, text=text, rows=self._listed(rows))

    def rows_of(self, items: Sequence[T]) -> dict[T, list[int]]:
        """Return for each item the numbers of the rows that have it, or an empty list if all rows do."""
        return self._rows([[item] for item in items])

    def _rows(self, items: Sequence[Sequence[T]]) -> dict[T, list[int]]:
        rows: dict[T, list[int]] = {}
        for number, of_run in enumerate(items, start=1):
            for item in dict.fromkeys(of_run):
                rows.setdefault(item, []).append(number)
        return {item: [] if len(numbers) == len(self.runs) else numbers for item, numbers in rows.items()}

    def _listed(self, rows: list[int]) -> str:
        return listed(list(map(str, rows)), self.lang)


def page_runs(
    runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool, published: bool | None = None
) -> PageRuns:
    """Raise BadInput if these runs do not belong on one page."""
    if not runs:
        raise BadInput("a page needs at least one run")
    for run_id, times in Counter(recorded.run.id for recorded in runs).items():
        if times > 1:
            raise BadInput(f"run {run_id} was given more than once; a page has one row per run")
    _refuse_mixture(runs, "case and case version", lambda run: f"{run.manifest.name} {run.manifest.version}")
    _refuse_mixture(runs, "vendor", vendor_word, ", or put them side by side with `flagperf compare`")
    if runs[0].run.simulated and not allow_simulated:
        raise BadInput(
            f"run {runs[0].run.id} is simulated: no device was used, so its figures must not be published; "
            "use --allow-simulated to write the page anyway, marked as simulated"
        )
    newest = max(runs, key=lambda recorded: recorded.run.created)
    return PageRuns(tuple(sorted(runs, key=_row_order)), newest.run.manifest, lang, published=published)


def _row_order(recorded: RecordedRun) -> tuple[object, ...]:
    """Sort by nodes, devices, precision, layout and overrides; the standard configuration comes first."""
    run, job = recorded.run, recorded.run.job
    precision = list(PRECISIONS).index(job.precision.name) if job.precision.name in PRECISIONS else len(PRECISIONS)
    return (
        len(job.nodes),
        job.devices_per_node,
        precision,
        not has_published_profile(run),
        not is_published(run),
        layout(run),
        overrides(run),
        job.device_model.short_name,
        run.created,
        run.id,
    )


def _refuse_mixture(runs: Sequence[RecordedRun], kind: str, word: Callable[[Run], str], advice: str = "") -> None:
    found = {word(recorded.run): recorded.run.id for recorded in runs}
    if len(found) > 1:
        each = ", ".join(f"{name} (run {run_id})" for name, run_id in found.items())
        raise BadInput(f"a page covers one {kind}, but these runs have {each}; write one page for each{advice}")

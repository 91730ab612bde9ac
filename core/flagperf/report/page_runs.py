"""PageRuns: the runs of one page, in the order of its rows, and what may stand on a page together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from flagperf.api import PRECISIONS
from flagperf.errors import BadInput
from flagperf.report.texts import Lang, listed, say
from flagperf.report.words import has_published_profile, is_published, layout, overrides, vendor_word
from flagperf.spec import Manifest
from flagperf.store.run import RecordedRun, Run


class PageRuns(msgspec.Struct, frozen=True):
    runs: tuple[RecordedRun, ...]
    """Row n of the performance table is run n - 1."""
    manifest: Manifest
    lang: Lang

    def by_rows(self, texts: Sequence[str]) -> list[str]:
        """One text per run -> one line per distinct text, led by the rows that it is about where there are
        several."""
        rows: dict[str, list[str]] = {}
        for number, text in enumerate(texts, start=1):
            if text:
                rows.setdefault(text, []).append(str(number))
        return [self._about(numbers, text) for text, numbers in rows.items()]

    def _about(self, numbers: list[str], text: str) -> str:
        if len(self.runs) == 1:
            return text
        if len(numbers) == len(self.runs):
            return say("all_rows", self.lang, text=text)
        return say(
            "some_rows" if len(numbers) > 1 else "one_row", self.lang, rows=listed(numbers, self.lang), text=text
        )


def page_runs(runs: Sequence[RecordedRun], lang: Lang, *, allow_simulated: bool) -> PageRuns:
    """Raises BadInput where these runs do not belong on one page."""
    if not runs:
        raise BadInput("a page needs at least one run")
    _refuse_repeated([recorded.run for recorded in runs])
    _refuse_mixture(runs, "case and version of it", lambda run: f"{run.manifest.name} {run.manifest.version}")
    _refuse_mixture(runs, "vendor", vendor_word)
    if runs[0].run.simulated and not allow_simulated:
        raise BadInput(
            f"run {runs[0].run.id} is simulated: no device was used, so its figures are not for publication; "
            "--allow-simulated writes the page all the same, marked as simulated in every place"
        )
    newest = max(runs, key=lambda recorded: recorded.run.created)
    return PageRuns(tuple(sorted(runs, key=_row_order)), newest.run.manifest, lang)


def _row_order(recorded: RecordedRun) -> tuple[object, ...]:
    """Nodes, devices, precision, layout, overrides; the standard configuration first."""
    run, job = recorded.run, recorded.run.job
    precision = list(PRECISIONS).index(job.precision.name) if job.precision.name in PRECISIONS else len(PRECISIONS)
    return (
        len(job.nodes), job.devices_per_node, precision, not has_published_profile(run), not is_published(run),
        layout(run), overrides(run), job.device_model.short_name, run.created, run.id,
    )  # fmt: skip


def _refuse_mixture(runs: Sequence[RecordedRun], kind: str, word: Callable[[Run], str]) -> None:
    found = {word(recorded.run): recorded.run.id for recorded in runs}
    if len(found) > 1:
        each = ", ".join(f"{name} (run {run_id})" for name, run_id in found.items())
        raise BadInput(f"a page belongs to one {kind}; these runs are of {each}; write one page for each")


def _refuse_repeated(runs: Sequence[Run]) -> None:
    ids = [run.id for run in runs]
    for run_id in ids:
        if ids.count(run_id) > 1:
            raise BadInput(f"run {run_id} was given more than once; a page has one row for each run")

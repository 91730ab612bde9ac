"""`flagperf runs list`: which runs, and how a line of them reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagperf.cli.columns import echo_columns
from flagperf.cli.options import note
from flagperf.errors import unknown_name
from flagperf.store.run_line import STATUSES, Headline, RunLine

if TYPE_CHECKING:
    from flagperf.plugins.installed import Plugins

NOTE_CHARACTERS = 40


def chosen(
    lines: Sequence[RunLine],
    runs_dir: Path,
    cases: Sequence[str],
    vendors: Sequence[str],
    statuses: Sequence[str],
    tags: Sequence[str],
) -> list[RunLine]:
    """One of the words of every filter that is given. Raises BadInput for a word that nothing is called."""
    where = f"(in {runs_dir})"
    _check("case", cases, [line.case for line in lines], where, lambda plugins: plugins.cases())
    _check("vendor", vendors, [line.vendor for line in lines], where, _vendors)
    _check("status", statuses, STATUSES, "")
    _check("tag", tags, [tag for line in lines for tag in line.tags], where)
    return [
        line
        for line in lines
        if (not cases or line.case in cases)
        and (not vendors or line.vendor in vendors)
        and (not statuses or line.status in statuses)
        and (not tags or set(tags) & set(line.tags))
    ]


def _vendors(plugins: Plugins) -> Iterable[str]:
    return [given.value.vendor for given in plugins.device_backends()]


def _check(
    kind: str,
    words: Sequence[str],
    present: Iterable[str],
    where: str,
    installed: Callable[[Plugins], Iterable[str]] = lambda _plugins: (),
) -> None:
    """A word that no run has may still be one that is installed: then there are no such runs, and that is no error."""
    found = set(present)
    missing = [word for word in words if word not in found]
    if not missing:
        return
    from flagperf.plugins.installed import load_plugins  # not at the top: few lists need it

    known = {*filter(None, found), *installed(load_plugins())}
    for word in missing:
        if word not in known:
            raise unknown_name(kind, word, known, where)


def echo_lines(lines: Sequence[RunLine]) -> None:
    heads = ["RUN", "CASE", "VENDOR", "DEVICE", "SHAPE", "PROFILE", "PRECISION", "RESULT", "STATUS"]
    rows = [_cells(line) for line in lines]
    for head, texts in (
        ("TAGS", [",".join(line.tags) for line in lines]),
        ("NOTE", [_short(line.note) for line in lines]),
    ):
        if any(texts):
            heads.append(head)
            rows = [[*row, text] for row, text in zip(rows, texts, strict=True)]
    echo_columns(heads, rows)
    for line in lines:
        if line.problem:
            note(f"{line.id}: {line.problem}")


def _cells(line: RunLine) -> list[str]:
    vendor = f"{line.vendor} (simulated)" if line.simulated else line.vendor
    result = _result(line.headline[0]) if line.headline else ""
    return [line.id, line.case, vendor, line.device, line.shape, line.profile, line.precision, result, _status(line)]


def _status(line: RunLine) -> str:
    where = f" (on {line.host})" if line.status == "unknown" and line.host else ""
    copy = " (redacted)" if line.redacted else ""
    return f"{line.status}{where}{copy}"


def _result(headline: Headline) -> str:
    """Formatted as everywhere. Its marks are in the report, and an asterisk says that there are some."""
    from flagperf import units
    from flagperf.metrics.registry import ENTRIES  # not at the top: --json has no use for it

    entry = ENTRIES.get(headline.name)
    text = (entry.format if entry else units.four_digits)(headline.value)
    unit = (entry.shown_unit if entry else "") or headline.unit
    shown = text if text.endswith("%") or unit == "share" else f"{text} {unit}"
    return f"{headline.name} {shown}{'*' if headline.marks else ''}"


def _short(text: str) -> str:
    first, *more = text.split("\n")
    return f"{first[: NOTE_CHARACTERS - 3]}..." if more or len(first) > NOTE_CHARACTERS else first

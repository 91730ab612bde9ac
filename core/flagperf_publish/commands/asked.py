"""Code that commands of this package share: the runs and the format that were asked for, and the browser."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from flagperf.cli.options import note
from flagperf.errors import BadInput


def distinct(paths: Iterable[Path]) -> list[Path]:
    """Return each folder once: a run that is named twice is one row."""
    return list({path.resolve(): path for path in paths}.values())


def form_of(asked: str | None, lang: str, as_json: bool, default: str, pages: Collection[str]) -> str:
    """Return the format. Options that contradict each other are refused: ignoring one would mislead."""
    if as_json and asked not in (None, "json"):
        raise BadInput(f"--json and --format {asked} contradict each other; give one of them")
    form = asked or ("json" if as_json else default)
    if lang != "en" and form not in pages:
        raise BadInput(f"--lang {lang} is for pages, --format {form} is in English only; add --format md or html")
    return form


def open_page(path: Path) -> None:
    import webbrowser  # lazy: only --open needs it

    if not webbrowser.open(path.absolute().as_uri()):
        note(f"no browser could be started; open {path} yourself")

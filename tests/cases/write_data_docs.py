"""Writes the data of each case into its README, from [[data]] of its case.toml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flagperf.metrics.registry import vocabulary
from flagperf.spec.manifest import Manifest, NeededData
from flagperf.spec.manifest_reading import read_manifest
from flagperf.units import count, setting

CASES = Path(__file__).parents[2] / "cases" / "flagperf_cases"
BEGIN, END = "<!-- Written by `make docs` from case.toml. -->\n", "<!-- Until here. -->\n"


def readmes() -> list[Path]:
    """Of the cases that read data."""
    return [path.parent / "README.md" for path in sorted(CASES.glob("*/case.toml")) if _manifest(path).data]


def render(readme: Path) -> str:
    page = readme.read_text()
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{readme} has no lines {BEGIN!r} and {END!r} for its data")
    return f"{before}{BEGIN}\n{_block(_manifest(readme.parent / 'case.toml'))}\n{END}{after}"


def _manifest(path: Path) -> Manifest:
    return read_manifest(path, vocabulary())


def _block(manifest: Manifest) -> str:
    items = "".join(line for data in manifest.data for line in _item(data))
    check = f"`flagperf data check {manifest.name} DIR`"
    return f"{items}\n{check} lists which of them are there, and what to do about the others.\n"


def _item(data: NeededData) -> Iterator[str]:
    needed = " and ".join(f"`{key}={setting(value)}`" for key, value in data.when.items())
    files = ", ".join(_file(names, data) for names in data.choices)
    yield f"- **{data.name}**, with {needed}: {files}\n"
    sources = " and ".join(f"<{url}>" for url in data.urls)
    what = ": ".join(filter(None, (f"from {sources}" if sources else "", data.take)))
    yield f"  - {what}; licence: {data.licence}\n"
    if data.command:
        yield f"  - `{data.command}`\n"


def _file(names: tuple[str, ...], data: NeededData) -> str:
    rows = [data.rows[name] for name in names if name in data.rows]
    return " or ".join(f"`{name}`" for name in names) + (f" ({count(rows[0])} rows)" if rows else "")


if __name__ == "__main__":
    for each in readmes():
        each.write_text(render(each))

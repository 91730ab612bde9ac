"""A case in detail: requirements, profiles, values and published results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flagperf.report.document import Block, Bullets, Facts, Head, Heading, LabelledCell, Link, Paragraph, Table, Text
from flagperf.report.sections.published_tables import published_results
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import flatten
from flagperf.units import count, setting

Contents = Mapping[str, Sequence[Mapping[str, str]]]
"""Title -> rows of a table, each column -> text: what a case says it consists of."""


def case_blocks(manifest: Manifest, folder: Path, contents: Contents) -> Iterator[Block]:
    yield Heading(f"{manifest.name}: {manifest.title['en']}")
    yield _about(manifest, folder)
    yield Facts(
        tuple(LabelledCell(name, Text(each.about["en"])) for name, each in manifest.profiles.items()), "Profiles"
    )
    for name, profile in manifest.profiles.items():
        if profile.files:
            yield Bullets(tuple(map(Text, profile.files)), f"Files that profile {name} needs in --data-dir")
    yield from _data(manifest)
    yield _values(manifest)
    for title, rows in contents.items():
        heads = list(rows[0]) if rows else []
        lines = tuple(tuple(Text(row.get(head, "")) for head in heads) for row in rows)
        yield Table(tuple(map(Head, heads)), lines, title)
    results = [*published_results([manifest], [], "en"), *_published_rows(manifest)]
    yield from results or [Paragraph("Published results: no figures of this case are known")]


def _data(manifest: Manifest) -> Iterator[Block]:
    """What it reads from --data-dir, and where that comes from."""
    for each in manifest.data:
        needed = ", ".join(f"{key}={setting(value)}" for key, value in each.when.items())
        facts = {
            "files": ", ".join(" or ".join(names) for names in each.choices),
            "needed with": needed,
            "rows": ", ".join(f"{name}: {count(rows)}" for name, rows in each.rows.items()),
            "take": each.take,
            "licence": each.licence,
            "command": each.command,
        }
        links = tuple(LabelledCell("from", Link(url, url)) for url in each.urls)
        found = tuple(LabelledCell(label, Text(text)) for label, text in facts.items() if text)
        yield Facts((*found[:1], *links, *found[1:]), f"Data in --data-dir DIR: {each.name}")


def _published_rows(manifest: Manifest) -> Iterator[Block]:
    """How many there are; each is shown beside a row of a run."""
    cards: Counter[str] = Counter()
    for table in manifest.published_rows:
        cards[f"{table.vendor} {table.device}"] += len(table.values)
    if cards:
        counts = ", ".join(f"{number} of {card}" for card, number in cards.items())
        yield Paragraph(f"Published values of single rows: {counts}. A run shows them beside rows of its own")


def _about(manifest: Manifest, folder: Path) -> Facts:
    target = f"{manifest.target.metric}, value of {manifest.target.key}" if manifest.target else "none"
    found = {
        "task": manifest.task["en"],
        "model": manifest.model,
        "dataset": manifest.dataset,
        "precisions": ", ".join(manifest.precisions),
        "target": target,
        "needs": ", ".join(manifest.requires),
        "folder": str(folder),
    }
    return Facts(tuple(LabelledCell(label, Text(text)) for label, text in found.items()))


def _values(manifest: Manifest) -> Table:
    profiles = {name: dict(flatten(profile.values)) for name, profile in manifest.profiles.items()}
    rows = [
        (Text(key), *(Text(setting(values.get(key, default))) for values in profiles.values()))
        for key, default in flatten(manifest.values)
    ]
    heads = tuple(map(Head, ("KEY", *profiles)))
    return Table(heads, tuple(rows), "Values (change one with --set KEY=VALUE)")

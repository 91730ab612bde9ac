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
    target = f"{manifest.target.metric}, value of {manifest.target.key}" if manifest.target else "none"
    about = {
        "task": manifest.task["en"],
        "model": manifest.model,
        "dataset": manifest.dataset,
        "precisions": ", ".join(manifest.precisions),
        "target": target,
        "needs": ", ".join(manifest.requires),
        "folder": str(folder),
    }
    yield Heading(f"{manifest.name}: {manifest.title['en']}")
    yield _facts(about)
    profiles = manifest.profiles
    yield _facts({name: profile.about["en"] for name, profile in profiles.items()}, "Profiles")
    for name, profile in profiles.items():
        if profile.files:
            yield Bullets(tuple(map(Text, profile.files)), f"Files that profile {name} needs in --data-dir")
    yield from _data(manifest)
    values = {name: dict(flatten(profile.values)) for name, profile in profiles.items()}
    settings = tuple(
        (Text(key), *(Text(setting(of_profile.get(key, default))) for of_profile in values.values()))
        for key, default in flatten(manifest.values)
    )
    yield Table(tuple(map(Head, ("KEY", *values))), settings, "Values (change one with --set KEY=VALUE)")
    for title, rows in contents.items():
        heads = list(rows[0]) if rows else []
        lines = tuple(tuple(Text(row.get(head, "")) for head in heads) for row in rows)
        yield Table(tuple(map(Head, heads)), lines, title)
    published = [*published_results([manifest], [], "en")]
    cards: Counter[str] = Counter()
    for table in manifest.published_rows:
        cards[f"{table.vendor} {table.device}"] += len(table.values)
    if cards:
        counts = ", ".join(f"{number} of {card}" for card, number in cards.items())
        note = f"Published values of single rows: {counts}. A run shows them beside rows of its own"
        published.append(Paragraph(note))
    yield from published or [Paragraph("Published results: no figures of this case are known")]


def _data(manifest: Manifest) -> Iterator[Block]:
    """Give what the case reads from --data-dir, and where to get it."""
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


def _facts(texts: Mapping[str, str], title: str = "") -> Facts:
    return Facts(tuple(LabelledCell(label, Text(text)) for label, text in texts.items()), title)

"""A case in detail: requirements, profiles, values and published results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flagperf.report.document import Block, Bullets, Fact, Facts, Head, Heading, Paragraph, Table, Text
from flagperf.report.sections.published import published_results
from flagperf.spec import Manifest, flatten
from flagperf.units import setting


def case_blocks(manifest: Manifest, folder: Path) -> Iterator[Block]:
    yield Heading(f"{manifest.name}: {manifest.title['en']}")
    yield _about(manifest, folder)
    yield Facts(tuple(Fact(name, Text(each.about["en"])) for name, each in manifest.profiles.items()), "Profiles")
    for name, profile in manifest.profiles.items():
        if profile.files:
            yield Bullets(tuple(map(Text, profile.files)), f"Files that profile {name} needs in --data-dir")
    yield _values(manifest)
    results = list(published_results([manifest], [], "en"))
    yield from results or [Paragraph("Published results: no figures of this case are known")]


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
    return Facts(tuple(Fact(label, Text(text)) for label, text in found.items()))


def _values(manifest: Manifest) -> Table:
    profiles = {name: dict(flatten(profile.values)) for name, profile in manifest.profiles.items()}
    rows = [
        (Text(key), *(Text(setting(values.get(key, default))) for values in profiles.values()))
        for key, default in flatten(manifest.values)
    ]
    heads = tuple(map(Head, ("KEY", *profiles)))
    return Table(heads, tuple(rows), "Values (change one with --set KEY=VALUE)")

"""Which case a page is of, and what its published configuration has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from flagperf.api import DeviceBackend
from flagperf.pages.cards import Card
from flagperf.pages.hardware import HardwarePage
from flagperf.pages.results import ResultPage
from flagperf.pages.source import SourcePage
from flagperf.pages.words import words
from flagperf.plan.tuning import find_tuning
from flagperf.spec import Manifest, flatten

LEAST = 5
"""Letters of a name that is looked for anywhere in a text."""


def case_of(page: ResultPage, manifests: Iterable[Manifest]) -> Manifest | None:
    """By the model that the general table names, else by a model that the text names. None if that is not one case."""
    readable = [manifest for manifest in manifests if manifest.published_pages is not None]
    stated = page.stated("model")
    if stated is not None:
        return _only([each for each in readable if _letters(stated.value) in _names(each)])
    text = _letters(" ".join(page.source.lines))
    return _only([each for each in readable if any(len(name) >= LEAST and name in text for name in _names(each))])


def hardware_case_of(page: HardwarePage) -> str:
    """The case whose figure a base page has. Empty for links and operators, whose conventions differ."""
    subjects = {row.subject for row in page.rows if "value" in row.cells}
    return next((item.case for item in words().imports if item.subject in subjects), "")


def mentions(page: SourcePage, name: str) -> int | None:
    """The first line with this word, without regard to case and punctuation."""
    wanted = _letters(name)
    lines = enumerate(page.lines, start=1)
    return next((number for number, line in lines if wanted and wanted in _letters(line)), None)


def published_values(manifest: Manifest, cards: Sequence[Card], nodes: int, devices: int) -> dict[str, object]:
    """The values of the published profile, with those of the vendor's tuning and of his published configuration."""
    profiles = (profile for profile in manifest.profiles.values() if profile.published)
    found = dict(flatten(manifest.values))
    for profile in profiles:
        found |= dict(flatten(profile.values))
    for card in cards:
        if card.known is not None:
            backend: DeviceBackend = card.known.given.checked(DeviceBackend)
            folder = backend.tuning_folder()
            tuning = find_tuning(folder, manifest.name, card.known.name, nodes, devices, "standard")
            found |= dict(flatten(tuning.values)) if tuning else {}
    pages = manifest.published_pages
    for known in pages.configurations if pages else ():
        is_here = (known.nodes, known.devices_per_node) == (nodes, devices)
        if is_here and any(known.device.lower() in card.spellings for card in cards):
            found |= known.values
    return found


def _names(manifest: Manifest) -> list[str]:
    pages = manifest.published_pages
    own = [manifest.name, manifest.model, *(pages.models if pages else ())]
    return [_letters(name) for name in own]


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _only(found: Sequence[Manifest]) -> Manifest | None:
    return found[0] if len(found) == 1 else None

"""Cards and vendors by the names that pages use. All names come from installed adapters and from published results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from flagperf.plan.card_models import KnownModel, known_models
from flagperf.plugins.installed import Plugins
from flagperf.spec.published import PublishedResult
from flagperf.units import GIB
from flagperf_publish.published.page_source import SourcePage, named, words

_SIZE = re.compile(r"-(\d+)GB$", re.IGNORECASE)
_SIZE_IN_TEXT = re.compile(r"(?<![\d.])(\d{2,4})\s*G(?:i?B)?(?![a-zA-Z0-9])", re.IGNORECASE)
_LETTERS = "a-z0-9"


class Card(msgspec.Struct, frozen=True):
    vendor: str
    name: str
    """As the adapter calls it, or published results."""
    short_name: str
    memory_gib: float | None = None
    peaks: dict[str, float] = {}
    """Row -> value, those of low confidence left out."""
    known: KnownModel | None = None
    """None for a card that only published results name."""

    @property
    def spellings(self) -> set[str]:
        names = {self.name, self.short_name, _SIZE.sub("", self.name)}
        return {name.lower() for name in names if len(name) > 2}


class Cards(msgspec.Struct, frozen=True):
    cards: tuple[Card, ...]
    vendor_words: dict[str, str]
    """Word in lower case -> vendor."""

    def vendors_in(self, text: str) -> list[str]:
        """In the order of the text."""
        found = [(match.start(), vendor) for word, vendor in self.vendor_words.items() for match in _finds(word, text)]
        return list(dict.fromkeys(vendor for _, vendor in sorted(found)))

    def cards_in(self, text: str) -> list[Card]:
        """All that a name may mean. Of names inside each other (K1, K1-X), the longer one counts; a size of memory
        beside the name tells equal names apart."""
        taken: list[tuple[int, int]] = []
        found: dict[str, Card] = {}
        spelled = {spelling for card in self.cards for spelling in card.spellings}
        for spelling in sorted(spelled, key=len, reverse=True):
            for match in _finds(spelling, text):
                if all(match.end() <= begin or match.start() >= end for begin, end in taken):
                    taken.append(match.span())
                    found |= {card.name: card for card in self.cards if spelling in card.spellings}
        return _of_size(list(found.values()), text)

    def cards_of(self, page: SourcePage) -> list[Card]:
        """By the lines about the accelerator: what all of them may mean, or any if they contradict each other."""
        named_there = [found for _, text in device_lines(page) if (found := self.cards_in(text))]
        if not named_there:
            return []
        all_mean = [card for card in named_there[0] if all(card in found for found in named_there)]
        return all_mean or list({card.name: card for found in named_there for card in found}.values())


def _finds(word: str, text: str) -> Iterator[re.Match[str]]:
    edges = (rf"(?<![{_LETTERS}])", rf"(?![{_LETTERS}])") if word.isascii() else ("", "")
    return re.finditer(edges[0] + re.escape(word.lower()) + edges[1], text.lower())


def _of_size(cards: list[Card], text: str) -> list[Card]:
    sizes = {float(size) for size in _SIZE_IN_TEXT.findall(text)}
    fitting = [card for card in cards if card.memory_gib in sizes]
    return fitting or cards


def device_lines(page: SourcePage) -> list[tuple[int, str]]:
    """Bullets that name the accelerator."""
    return [(fact.line, fact.value) for fact in page.facts if named(fact.key, words().facts) in ("device", "product")]


def installed_cards(plugins: Plugins) -> Cards:
    references = [each for case in plugins.complete_cases().values() for each in case.manifest.references]
    known, _ = known_models(plugins, None)
    cards = [_known(model, references) for model in known if not model.given.value.is_fallback]
    cards += _published(references, cards)
    return Cards(tuple(cards), _vendor_words(plugins, references))


def _known(model: KnownModel, references: Iterable[PublishedResult]) -> Card:
    size, _ = model.memory_bytes(references)
    peaks = {peak.row: peak.value for peak in model.peaks if peak.confidence != "low" and peak.value > 0}
    short_name = model.other_name or model.name
    return Card(model.vendor, model.name, short_name, None if size is None else size / GIB, peaks, model)


def _published(references: Iterable[PublishedResult], known: Iterable[Card]) -> list[Card]:
    """Cards that no installed adapter knows."""
    names = {(card.vendor, spelling) for card in known for spelling in card.spellings}
    found: dict[tuple[str, str], Card] = {}
    for each in references:
        name = _SIZE.sub("", each.device)
        is_known = {(each.vendor, each.device.lower()), (each.vendor, name.lower())} & names
        if not is_known and " and " not in each.device:
            size = _SIZE.search(each.device)
            found[each.vendor, each.device] = Card(each.vendor, each.device, name, float(size[1]) if size else None)
    return list(found.values())


def _vendor_words(plugins: Plugins, references: Iterable[PublishedResult]) -> dict[str, str]:
    found: dict[str, str] = {each.vendor.lower(): each.vendor for each in references}
    for given in plugins.device_backends():
        backend = given.value
        titles: Mapping[str, str] = backend.title
        if not backend.is_fallback:
            for word in (backend.vendor, *backend.aliases, *titles.values()):
                found[word.lower()] = backend.vendor
    return found

"""`flagperf pages lint`: what on a published page contradicts itself, or what is known of the card and the case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from flagperf.errors import BadInput
from flagperf.plausibility.doubts import IDENTICAL_FIGURES
from flagperf.spec.manifest import Manifest
from flagperf_publish.published import hardware_pages, result_checks
from flagperf_publish.published.findings import PageFinding, Recomputed, finding, page_rule
from flagperf_publish.published.hardware_pages import HardwareContext, hardware_case_of, hardware_page
from flagperf_publish.published.page_source import SourcePage, folded, named, words
from flagperf_publish.published.result_checks import ResultContext, named_cards
from flagperf_publish.published.result_pages import Cards, case_of, device_lines, result_page

POWER = ("system_mean", "system_max", "system_deviation", "card_mean", "card_max", "card_deviation")

_RELEASE = re.compile(r"(?:centos|rhel|red hat|rocky|alma|anolis|openeuler)\D{0,20}(\d{1,2})", re.IGNORECASE)
_KERNEL = re.compile(r"\.el(\d{1,2})")
_NUMBERED = re.compile(r"(\d+)\.\s")


class LintedPage(msgspec.Struct, frozen=True):
    path: str
    sha256: str
    case: str
    """Empty if no installed case is recognised."""
    findings: tuple[PageFinding, ...]
    """By line."""
    recomputed: tuple[Recomputed, ...]


class Known(msgspec.Struct, frozen=True):
    """What is installed, to compare pages with."""

    cards: Cards
    manifests: dict[str, Manifest]


def lint_page(page: SourcePage, known: Known, case: str | None = None) -> LintedPage:
    """Raise BadInput for a page without a table of results."""
    found: list[PageFinding | Recomputed] = []
    results, hardware = result_page(page), hardware_page(page)
    if results is not None:
        manifest = known.manifests[case] if case else case_of(results, known.manifests.values())
        context = ResultContext(result_page(page, manifest) or results, manifest, known.cards)
        case = manifest.name if manifest else ""
        found += vendor_differs(page, known.cards, named_cards(context))
        for check in result_checks.CHECKS:
            found += check(context)
    elif hardware is not None:
        case = case or hardware_case_of(hardware)
        found += vendor_differs(page, known.cards, device_lines(page))
        for hardware_check in hardware_pages.CHECKS:
            found += hardware_check(HardwareContext(hardware, tuple(known.cards.cards_of(page))))
    else:
        raise BadInput(
            f"{page.path}: no table of results was found; one begins with a column for the configuration (配置), the "
            "inference engine (推理工具) or the item (评测项)"
        )
    found += [*os_and_kernel_differ(page), *empty_facts(page), *duplicate_section(page)]
    findings = sorted((each for each in found if isinstance(each, PageFinding)), key=lambda each: each.line)
    recomputed = tuple(each for each in found if isinstance(each, Recomputed))
    return LintedPage(page.path, page.sha256, case, tuple(findings), recomputed)


def lint_pages(pages: Sequence[SourcePage], known: Known, case: str | None = None) -> Iterator[LintedPage | BadInput]:
    """Yield what is found on each page, in their order, or an error for a page that has no results."""
    copied = copied_power(pages)
    for page in pages:
        try:
            linted = lint_page(page, known, case)
        except BadInput as error:
            yield error
            continue
        together = sorted((*linted.findings, *copied.get(page.path, ())), key=lambda each: each.line)
        yield msgspec.structs.replace(linted, findings=tuple(together))


# --- checks of every page ---------------------------------------------------------------------------------------------

VENDOR_DIFFERS = page_rule(
    "vendor_differs",
    "a page of K100 cards titled Nvidia GPU: training/dcu/glm-pytorch/README.md; 10 of 126 training pages"
    " name another vendor's chip",
)


def vendor_differs(page: SourcePage, cards: Cards, named_cards: list[tuple[int, str]]) -> Iterator[PageFinding]:
    """Find titles that name another vendor than the cards. `named_cards` are the lines and texts that name these.

    Titles are headings about the vendor's cards, and bullets that name the vendor.
    """
    owners = {card.vendor for _, text in named_cards for card in cards.cards_in(text)}
    if len(owners) != 1:
        return
    owner = owners.pop()
    line, text = next((line, text) for line, text in named_cards if cards.cards_in(text))
    subjects = tuple(map(folded, words().titles["subject"]))
    titles = [(each.line, each.text) for each in page.headings if any(word in folded(each.text) for word in subjects)]
    titles += [(fact.line, fact.value) for fact in page.facts if named(fact.key, words().facts) == "vendor"]
    for at, title in titles:
        titled = cards.vendors_in(title)
        if titled and owner not in titled:
            params = {"title": title, "vendors": titled, "device": text, "line": line, "owner": owner}
            yield finding(VENDOR_DIFFERS, at, "lint.vendor_differs", **params)


OS_AND_KERNEL_DIFFER = page_rule(
    "os_and_kernel_differ", "CentOS 7.6 with a kernel of el8: training/dcu/glm-pytorch/README.md"
)


def os_and_kernel_differ(page: SourcePage) -> Iterator[PageFinding]:
    facts = {named(fact.key, words().facts): fact for fact in page.facts}
    system, kernel = facts.get("os"), facts.get("kernel")
    if system is None or kernel is None:
        return
    release, built_for = _RELEASE.search(system.value), _KERNEL.search(kernel.value)
    if release and built_for and release[1] != built_for[1]:
        params = {"os": system.value, "kernel": kernel.value, "line": system.line}
        yield finding(OS_AND_KERNEL_DIFFER, kernel.line, "lint.os_and_kernel_differ", **params)


EMPTY_FACTS = page_rule("empty_facts", "CPU and network without a word: training/dcu/glm-pytorch/README.md")


def empty_facts(page: SourcePage) -> Iterator[PageFinding]:
    empty = [fact for fact in page.facts if not fact.value and not fact.has_children]
    if empty:
        params = {"names": [fact.key for fact in empty], "lines": [fact.line for fact in empty]}
        yield finding(EMPTY_FACTS, empty[0].line, "lint.empty_facts", **params)


DUPLICATE_SECTION = page_rule("duplicate_section", "two sections numbered 2: inference/benchmarks/Aquila_33b/README.md")


def duplicate_section(page: SourcePage) -> Iterator[PageFinding]:
    seen: dict[tuple[int, str], int] = {}
    for heading in page.headings:
        found = _NUMBERED.match(heading.text)
        key = (heading.level, found[1] if found else "")
        if found and key in seen:
            yield finding(DUPLICATE_SECTION, heading.line, "lint.duplicate_section", number=found[1], line=seen[key])
        elif found:
            seen[key] = heading.line


def copied_power(pages: Sequence[SourcePage]) -> Mapping[str, list[PageFinding]]:
    """Return, by path, the power figures that another page has as well, to the last digit."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for page in pages:
        hardware = hardware_page(page)
        for row in hardware.rows if hardware is not None else ():
            power = tuple(row.cells[name].text for name in POWER if not row.is_empty(name))
            if len(power) >= len(POWER) - 1:
                places.setdefault(power, []).append((page.path, row.line))
    found: dict[str, list[PageFinding]] = {}
    for same in places.values():
        for path, line in same:
            twin = next(((other, at) for other, at in same if other != path), None)
            if twin is not None:
                said = finding(IDENTICAL_FIGURES, line, "lint.copied_power", other=twin[0], line=twin[1])
                found.setdefault(path, []).append(said)
    return found

"""`flagperf pages lint`: what on a published page contradicts itself, or what is known of the card and the case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from flagperf.errors import BadInput
from flagperf.plausibility.doubts import IDENTICAL_FIGURES
from flagperf.spec.manifest import Manifest
from flagperf_publish.published import hardware_pages, result_checks
from flagperf_publish.published.findings import PageFinding, Recomputed, finding
from flagperf_publish.published.hardware_pages import HardwareContext, HardwarePage, HardwareRow, hardware_page
from flagperf_publish.published.page_cards import Cards, device_lines
from flagperf_publish.published.page_source import SourcePage
from flagperf_publish.published.result_checks import ResultContext, check_mfu
from flagperf_publish.published.result_pages import ResultPage, case_of, hardware_case_of, result_page

POWER = ("system_mean", "system_max", "system_deviation", "card_mean", "card_max", "card_deviation")


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
    """Raises BadInput for a page without a table of results."""
    results = result_page(page)
    hardware = hardware_page(page)
    if results is not None:
        return _lint_results(results, known, case)
    if hardware is not None:
        return _linted(page, case or hardware_case_of(hardware), list(_hardware(hardware, known)))
    raise BadInput(
        f"{page.path}: no table of results was found; one begins with a column for the configuration (配置), the "
        "inference engine (推理工具) or the item (评测项)"
    )


def _lint_results(page: ResultPage, known: Known, case: str | None) -> LintedPage:
    manifest = known.manifests[case] if case else case_of(page, known.manifests.values())
    again = result_page(page.source, manifest) or page
    context = ResultContext(again, manifest, known.cards)
    return _linted(page.source, manifest.name if manifest else "", list(_results(context)))


def _results(context: ResultContext) -> Iterator[PageFinding | Recomputed]:
    page = context.page.source
    yield from result_checks.vendor_differs(page, context.cards, result_checks.named_cards(context))
    for check in (
        result_checks.devices_differ,
        result_checks.card_count,
        result_checks.parallel_product,
        *result_checks.CHECKS,
    ):
        yield from check(context)
    yield from check_mfu(context)
    yield from _any_page(page)


def _hardware(page: HardwarePage, known: Known) -> Iterator[PageFinding]:
    context = HardwareContext(page, tuple(known.cards.cards_of(page.source)), known.cards)
    yield from result_checks.vendor_differs(page.source, known.cards, device_lines(page.source))
    for check in hardware_pages.CHECKS:
        yield from check(context)
    yield from _any_page(page.source)


def _any_page(page: SourcePage) -> Iterator[PageFinding]:
    for check in (result_checks.os_and_kernel_differ, result_checks.empty_facts, result_checks.duplicate_section):
        yield from check(page)


def _linted(page: SourcePage, case: str, found: Sequence[PageFinding | Recomputed]) -> LintedPage:
    findings = sorted((each for each in found if isinstance(each, PageFinding)), key=lambda each: each.line)
    recomputed = tuple(each for each in found if isinstance(each, Recomputed))
    return LintedPage(page.path, page.sha256, case, tuple(findings), recomputed)


def lint_pages(pages: Sequence[SourcePage], known: Known, case: str | None = None) -> Iterator[LintedPage | BadInput]:
    """In their order, with what several of them have in common; an error for a page that has no results."""
    copied = copied_power(pages)
    for page in pages:
        try:
            linted = lint_page(page, known, case)
        except BadInput as error:
            yield error
            continue
        together = sorted((*linted.findings, *copied.get(page.path, ())), key=lambda each: each.line)
        yield msgspec.structs.replace(linted, findings=tuple(together))


def copied_power(pages: Sequence[SourcePage]) -> Mapping[str, list[PageFinding]]:
    """Path -> power that is that of another page, to the last digit."""
    rows: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for page in pages:
        for row in _hardware_rows(page):
            rows.setdefault(_power(row), []).append((page.path, row.line))
    found: dict[str, list[PageFinding]] = {}
    for power, places in rows.items():
        if len(power) < len(POWER) - 1:
            continue
        for path, line in places:
            twin = next(((other, at) for other, at in places if other != path), None)
            if twin is not None:
                said = finding(IDENTICAL_FIGURES, line, "lint.copied_power", other=twin[0], line=twin[1])
                found.setdefault(path, []).append(said)
    return found


def _hardware_rows(page: SourcePage) -> Sequence[HardwareRow]:
    found = hardware_page(page)
    return found.rows if found is not None else ()


def _power(row: HardwareRow) -> tuple[str, ...]:
    return tuple(row.cells[name].text for name in POWER if name in row.cells and not row.cells[name].is_empty)

"""A published page as reference results of its case. What cannot be read is named, and nothing is guessed silently."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from flagperf.api import PRECISIONS
from flagperf.bundle.imported import ImportedPage
from flagperf.errors import BadInput
from flagperf.metrics.registry import ENTRIES
from flagperf.metrics.row_figures import SCALES
from flagperf.spec.manifest import REPORT_METRICS, Manifest
from flagperf.spec.published import PublishedResult
from flagperf.text import without_controls
from flagperf.units import GIB, setting
from flagperf_publish.published.hardware_pages import HardwarePage, HardwareRow, hardware_page
from flagperf_publish.published.page_cards import Card, device_lines
from flagperf_publish.published.page_lint import Known
from flagperf_publish.published.page_source import ImportedItem, SourcePage, is_nothing, memory, named, settings, words
from flagperf_publish.published.result_checks import ResultContext
from flagperf_publish.published.result_pages import (
    IDENTITY,
    ResultCell,
    ResultRow,
    case_of,
    hardware_case_of,
    result_page,
)

ADVICE = "give --vendor and --device"


class Remark(msgspec.Struct, frozen=True):
    """What was not imported, or not as the page has it, and why."""

    line: int
    what: str
    why: str


class Asked(msgspec.Struct, frozen=True):
    """What the user says of the page, in place of what it says itself."""

    case: str | None = None
    vendor: str | None = None
    device: str | None = None


class Reading(msgspec.Struct, frozen=True):
    name: str
    """Of the file."""
    page: ImportedPage
    remarks: tuple[Remark, ...]


def import_page(page: SourcePage, known: Known, asked: Asked) -> Reading:
    """Raises BadInput if the case or the card is not clear, or if the page has no results of a case."""
    results, hardware = result_page(page), hardware_page(page)
    remarks: list[Remark] = []
    if results is not None:
        manifest = known.manifests[asked.case] if asked.case else case_of(results, known.manifests.values())
        if manifest is None:
            raise _unclear(page, known, "no installed case, or more than one, has the model that it names")
        again = result_page(page, manifest) or results
        found = list(_results(ResultContext(again, manifest, known.cards), manifest, asked, remarks))
    elif hardware is not None:
        case = asked.case or hardware_case_of(hardware)
        if case not in known.manifests:
            raise _unclear(page, known, "it is a page of links or operators, whose conventions no case has")
        manifest = known.manifests[case]
        found = list(_hardware(hardware, manifest, known, asked, remarks))
    else:
        raise BadInput(f"{page.path} has no table of results")
    if not found:
        why = "; ".join(f"line {each.line}: {each.what}: {each.why}" for each in remarks[:3])
        raise BadInput(f"{page.path}: no row can be imported{': ' if why else ''}{why}")
    first = found[0]
    name = re.sub(r"[^\w.-]+", "_", f"{manifest.name}-{first.vendor}-{first.device}-{page.sha256[:8]}")
    return Reading(name, ImportedPage(manifest.name, page.path, page.sha256, tuple(found)), tuple(remarks))


def _unclear(page: SourcePage, known: Known, why: str) -> BadInput:
    return BadInput(f"{page.path}: {why}; say which with --case (known: {', '.join(sorted(known.manifests))})")


# --- training and inference -----------------------------------------------------------------------------------------


def _results(
    context: ResultContext, manifest: Manifest, asked: Asked, remarks: list[Remark]
) -> Iterator[PublishedResult]:
    for row in context.page.table.rows:
        precision = _precision(context.precision_of(row), manifest)
        devices = context.devices_of(row)
        if precision is None or devices is None:
            what = "precision" if precision is None else "configuration"
            text = row.text(what) or context.precision_of(row)
            remarks.append(Remark(row.line, what, f"{text!r} is not one of this case's" if text else "it is missing"))
            continue
        vendor, device = _card(context.page.source, context.cards_of(row), row, asked)
        shape = row.configuration
        if shape is None:
            remarks.append(Remark(row.line, "configuration", f"not stated; {devices} devices by the case's layout"))
        yield PublishedResult(
            vendor=vendor,
            device=device,
            nodes=shape.nodes if shape else 1,
            devices_per_node=shape.devices_per_node if shape else devices,
            precision=precision,
            overrides=_overrides(row.text("fix_hp")),
            source=context.page.source.path,
            values=_values(row, manifest, remarks),
            parallel=without_controls(row.text("parallel")),
            engine=without_controls(row.text("engine")),
            line=row.line,
            sha256=context.page.source.sha256,
        )


def _precision(word: str, manifest: Manifest) -> str | None:
    """A word of flagperf. `amp` is the case's only mixed precision, where it has one."""
    if word in PRECISIONS:
        return word
    mixed = [name for name in manifest.precisions if name.startswith("amp-")]
    return mixed[0] if word == "amp" and len(mixed) == 1 else None


def _card(page: SourcePage, cards: Sequence[Card], row: ResultRow | None, asked: Asked) -> tuple[str, str]:
    """Vendor and device, as published results of cases write them: C500-64GB."""
    vendors = {card.vendor for card in cards}
    vendor = asked.vendor.lower() if asked.vendor else vendors.pop() if len(vendors) == 1 else None
    if vendor is None:
        found = ", ".join(text for _, text in device_lines(page)) or "nothing"
        raise BadInput(f"{page.path}: whose card it is about is not clear ({found}); {ADVICE}")
    total = _total_gib(row)
    fitting = [card for card in cards if total is None or card.memory_gib in (None, total)] or list(cards)
    device = asked.device or (fitting[0].name if len(fitting) == 1 else fitting[0].short_name if fitting else None)
    if device is None:
        raise BadInput(f"{page.path}: which card it is about is not clear; {ADVICE}")
    size = total or next((card.memory_gib for card in fitting), None)
    is_whole = re.search(r"\d+GB$", device) is not None or row is None or size is None or asked.device is not None
    return vendor, device if is_whole else f"{device}-{size:g}GB"


def _total_gib(row: ResultRow | None) -> float | None:
    cell = row.cells.get("mem") if row is not None else None
    found = memory(cell.text) if cell is not None else None
    return found[1].value if found else None


def _overrides(text: str) -> str:
    """`bs=16, lr=1e-5`, without the precision."""
    if is_nothing(text):
        return "none"
    pairs = [(key, value) for key, value in settings(text) if not named(key, words().overrides)]
    shown = [f"{without_controls(key)}={_number(value)}" for key, value in pairs]
    return ", ".join(shown) if shown else "none" if list(settings(text)) else without_controls(text)


def _number(text: str) -> str:
    try:
        return setting(float(text)) if re.search(r"[.eE]", text) else without_controls(text)
    except ValueError:
        return without_controls(text)


def _values(row: ResultRow, manifest: Manifest, remarks: list[Remark]) -> dict[str, float]:
    """In the units of the metrics."""
    renamed = manifest.published_pages.columns if manifest.published_pages else {}
    known = {*ENTRIES, *manifest.own_metrics, *REPORT_METRICS}
    found: dict[str, float] = {}
    for name, cell in row.cells.items():
        if name in IDENTITY or cell.is_empty:
            continue
        metric = renamed[name] if name in renamed and renamed[name] not in row.cells else name
        if name == "mem":
            found |= _memory(cell, remarks)
        elif metric not in known:
            remarks.append(Remark(cell.line, name, "no metric of this case"))
        else:
            found |= _value(metric, cell, manifest, remarks)
    return found


def _memory(cell: ResultCell, remarks: list[Remark]) -> dict[str, float]:
    parts = memory(cell.text)
    if parts is None:
        remarks.append(Remark(cell.line, "mem", f"{cell.text!r} is not used/total"))
        return {}
    return {"mem_used": round(parts[0].value * GIB), "mem_total": round(parts[1].value * GIB)}


def _value(metric: str, cell: ResultCell, manifest: Manifest, remarks: list[Remark]) -> dict[str, float]:
    number = cell.quantity
    if number is None:
        remarks.append(Remark(cell.line, metric, f"{cell.text!r} is not a value"))
        return {}
    limits = {quality.name: (quality.minimum, quality.maximum) for quality in manifest.qualities}
    low, high = limits.get(metric, (0.0, 1.0 if metric == "mfu" else None))
    if (low is not None and number.amount < low) or (high is not None and number.amount > high):
        remarks.append(Remark(cell.line, metric, f"{cell.text!r} is not possible"))
        return {}
    return {metric: float(f"{number.amount:.10g}")}


# --- the hardware itself --------------------------------------------------------------------------------------------


def _hardware(
    page: HardwarePage, manifest: Manifest, known: Known, asked: Asked, remarks: list[Remark]
) -> Iterator[PublishedResult]:
    cards = known.cards.cards_of(page.source)
    servers, per_server = page.count("servers"), page.count("cards_per_server")
    if servers is None or per_server is None:
        raise BadInput(f"{page.source.path}: the numbers of servers and cards are not clear")
    for row in page.rows:
        item = next((item for item in words().imports if item.subject == row.subject), None)
        if item is None or "value" not in row.cells or item.case != manifest.name:
            continue
        values = _figure(row, item, page, manifest, servers * per_server, remarks)
        if not values:
            continue
        vendor, device = _card(page.source, cards, None, asked)
        yield PublishedResult(
            vendor=vendor,
            device=device,
            nodes=servers,
            devices_per_node=per_server,
            precision=str(manifest.values["precision"]),
            overrides=item.busy.format(cards=per_server) if per_server > 1 else item.alone,
            source=page.source.path,
            values=values,
            line=row.line,
            sha256=page.source.sha256,
        )


def _figure(
    row: HardwareRow, item: ImportedItem, page: HardwarePage, manifest: Manifest, cards: int, remarks: list[Remark]
) -> dict[str, float]:
    cell, stated = row.cells["value"], page.precision
    name = (item.figure if cards > 1 else item.single).format(precision=stated[0] if stated else "")
    found = cell.quantity
    units = {figure.name: figure.unit for figure in manifest.figures}
    if found is None or not found.unit:
        remarks.append(Remark(row.line, cell.head, f"{cell.text!r} is not a value with a unit"))
    elif name not in units:
        remarks.append(Remark(row.line, cell.head, f"case {manifest.name} has no figure {name!r}"))
    else:
        return {name: float(f"{found.amount / SCALES[units[name]]:.10g}")}
    return {}

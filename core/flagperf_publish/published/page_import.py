"""A published page as reference results of its case. Cells that cannot be read are named, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from flagperf.api import PRECISIONS
from flagperf.bundle.imported import ImportedPage
from flagperf.errors import BadInput
from flagperf.metrics.registry import ENTRIES
from flagperf.spec.manifest import REPORT_METRICS, Manifest
from flagperf.spec.published import PublishedResult
from flagperf.text import without_controls
from flagperf.units import GIB, SCALES, setting
from flagperf_publish.published.hardware_pages import HardwarePage, hardware_case_of, hardware_page
from flagperf_publish.published.page_lint import Known
from flagperf_publish.published.page_source import SourcePage, is_nothing, memory, named, settings, words
from flagperf_publish.published.result_checks import ResultContext
from flagperf_publish.published.result_pages import IDENTITY, PageCard, ResultRow, case_of, device_lines, result_page


class Remark(msgspec.Struct, frozen=True):
    """What was not imported, or not as the page has it, and why."""

    line: int
    what: str
    why: str


class SaidOfPage(msgspec.Struct, frozen=True):
    """What the user says of a page; it counts more than what the page says."""

    case: str | None = None
    vendor: str | None = None
    device: str | None = None


class PageReading(msgspec.Struct, frozen=True):
    name: str
    """The name of its file, without the folder."""
    page: ImportedPage
    remarks: tuple[Remark, ...]


def import_page(page: SourcePage, known: Known, asked: SaidOfPage) -> PageReading:
    """Raise BadInput if the case or the card is not clear, or if the page has no results of a case."""
    results, hardware = result_page(page), hardware_page(page)
    remarks: list[Remark] = []
    found: list[PublishedResult] = []
    if results is not None:
        manifest = known.manifests[asked.case] if asked.case else case_of(results, known.manifests.values())
        unclear = "no installed case, or more than one, has the model that it names"
    elif hardware is not None:
        manifest = known.manifests.get(asked.case or hardware_case_of(hardware))
        unclear = "it is a page of links or operators, whose conventions no case has"
    else:
        raise BadInput(f"{page.path} has no table of results")
    if manifest is None:
        cases = ", ".join(sorted(known.manifests))
        raise BadInput(f"{page.path}: {unclear}; say which with --case (known: {cases})")
    if results is not None:
        context = ResultContext(result_page(page, manifest) or results, manifest, known.cards)
        found += _results(context, manifest, asked, remarks)
    elif hardware is not None:
        found += _hardware(hardware, manifest, known.cards.cards_of(page), asked, remarks)
    if not found:
        why = "; ".join(f"line {each.line}: {each.what}: {each.why}" for each in remarks[:3])
        raise BadInput(f"{page.path}: no row can be imported{': ' if why else ''}{why}")
    first = found[0]
    name = re.sub(r"[^\w.-]+", "_", f"{manifest.name}-{first.vendor}-{first.device}-{page.sha256[:8]}")
    return PageReading(name, ImportedPage(manifest.name, page.path, page.sha256, tuple(found)), tuple(remarks))


def _results(
    context: ResultContext, manifest: Manifest, asked: SaidOfPage, remarks: list[Remark]
) -> Iterator[PublishedResult]:
    """Yield the rows of a page of training or inference, and add a remark for each that is left out."""
    mixed = [name for name in manifest.precisions if name.startswith("amp-")]
    for row in context.page.table.rows:
        precision, devices = context.precision_of(row), context.devices_of(row)
        if precision == "amp" and len(mixed) == 1:
            precision = mixed[0]
        if precision not in PRECISIONS or devices is None:
            what = "precision" if precision not in PRECISIONS else "configuration"
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


def _card(page: SourcePage, cards: Sequence[PageCard], row: ResultRow | None, asked: SaidOfPage) -> tuple[str, str]:
    """Return vendor and device, as published results of cases write them: C500-64GB."""
    vendors = {card.vendor for card in cards}
    vendor = asked.vendor.lower() if asked.vendor else vendors.pop() if len(vendors) == 1 else None
    if vendor is None:
        found = ", ".join(text for _, text in device_lines(page)) or "nothing"
        raise BadInput(f"{page.path}: whose card it is about is not clear ({found}); give --vendor and --device")
    used_and_total = memory(row.text("mem")) if row is not None else None
    total = used_and_total[1].value if used_and_total else None
    fitting = [card for card in cards if total is None or card.memory_gib in (None, total)] or list(cards)
    device = asked.device or (fitting[0].name if len(fitting) == 1 else fitting[0].short_name if fitting else None)
    if device is None:
        raise BadInput(f"{page.path}: which card it is about is not clear; give --vendor and --device")
    size = total or next((card.memory_gib for card in fitting), None)
    is_whole = re.search(r"\d+GB$", device) is not None or row is None or size is None or asked.device is not None
    return vendor, device if is_whole else f"{device}-{size:g}GB"


def _overrides(text: str) -> str:
    """Return the pairs of `bs=16, lr=1e-5` without the precision."""
    if is_nothing(text):
        return "none"
    shown = []
    for key, value in settings(text):
        if not named(key, words().overrides):
            try:
                value = setting(float(value)) if re.search(r"[.eE]", value) else without_controls(value)
            except ValueError:
                value = without_controls(value)
            shown.append(f"{without_controls(key)}={value}")
    return ", ".join(shown) if shown else "none" if list(settings(text)) else without_controls(text)


def _values(row: ResultRow, manifest: Manifest, remarks: list[Remark]) -> dict[str, float]:
    """Return the values of a row in the units of the metrics, and add a remark for each cell that is left out."""
    renamed = manifest.published_pages.columns if manifest.published_pages else {}
    known = {*ENTRIES, *manifest.own_metrics, *REPORT_METRICS}
    limits = {quality.name: (quality.minimum, quality.maximum) for quality in manifest.qualities}
    found: dict[str, float] = {}
    for name, cell in row.cells.items():
        if name in IDENTITY or cell.is_empty:
            continue
        metric = renamed[name] if name in renamed and renamed[name] not in row.cells else name
        number = cell.quantity
        low, high = limits.get(metric, (0.0, 1.0 if metric == "mfu" else None))
        if name == "mem":
            parts = memory(cell.text)
            if parts is None:
                remarks.append(Remark(cell.line, "mem", f"{cell.text!r} is not used/total"))
            else:
                found |= {"mem_used": round(parts[0].value * GIB), "mem_total": round(parts[1].value * GIB)}
        elif metric not in known:
            remarks.append(Remark(cell.line, name, "no metric of this case"))
        elif number is None:
            remarks.append(Remark(cell.line, metric, f"{cell.text!r} is not a value"))
        elif (low is not None and number.amount < low) or (high is not None and number.amount > high):
            remarks.append(Remark(cell.line, metric, f"{cell.text!r} is not possible"))
        else:
            found[metric] = float(f"{number.amount:.10g}")
    return found


def _hardware(
    page: HardwarePage, manifest: Manifest, cards: Sequence[PageCard], asked: SaidOfPage, remarks: list[Remark]
) -> Iterator[PublishedResult]:
    """Yield the figures of a base page, and add a remark for each that is left out."""
    servers, per_server = page.count("servers"), page.count("cards_per_server")
    if servers is None or per_server is None:
        raise BadInput(f"{page.source.path}: the numbers of servers and cards are not clear")
    units = {figure.name: figure.unit for figure in manifest.figures}
    for row in page.rows:
        item = next((item for item in words().imports if item.subject == row.subject), None)
        if item is None or "value" not in row.cells or item.case != manifest.name:
            continue
        cell, stated = row.cells["value"], page.precision
        found = cell.quantity
        name = (item.figure if servers * per_server > 1 else item.single).format(precision=stated[0] if stated else "")
        if found is None or not found.unit:
            remarks.append(Remark(row.line, cell.head, f"{cell.text!r} is not a value with a unit"))
            continue
        if name not in units:
            remarks.append(Remark(row.line, cell.head, f"case {manifest.name} has no figure {name!r}"))
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
            values={name: float(f"{found.amount / SCALES[units[name]]:.10g}")},
            line=row.line,
            sha256=page.source.sha256,
        )

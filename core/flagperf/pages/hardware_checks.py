"""Checks of base and operator pages: ratios, peaks, and the power that was read beside."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf import units
from flagperf.pages.finding import HardwareContext, PageFinding, finding
from flagperf.pages.hardware import HardwareRow
from flagperf.pages.quantities import Quantity, quantity
from flagperf.plausibility.arithmetic import GIB_PER_GB, explaining_row, is_gb_for_gib, is_idle, largest_deviation
from flagperf.plausibility.rule import rules

SHARES = (("wall_share", "wall_rate"), ("kernel_share", "kernel_rate"), ("ratio", "value"))
"""Cells with a share of the rated value, and the cell that it is of."""

PEAK_ROWS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


def shares(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for name, _ in SHARES:
            share, cell = row.amount(name), row.cells.get(name)
            if share is None or cell is None:
                continue
            if share > 1:
                params = {"metric": cell.head, "share": cell.text}
                yield finding("utilisation_over_100", row.line, "doubt.utilisation_over_100", **params)
            elif share <= 0:
                yield finding(
                    "share_not_positive", row.line, "lint.share_not_positive", what=cell.head, share=cell.text
                )


def ratios(context: HardwareContext) -> Iterator[PageFinding]:
    limit = rules()["ratio_does_not_recompute"].limits["points"]
    for row in context.page.rows:
        cell = row.cells.get("ratio")
        printed = cell.quantity if cell is not None else None
        if cell is None or printed is None:
            continue
        value, rated = _operand(row, "value"), _operand(row, "rated")
        if value is None or rated is None:
            if not _is_there(row, "value") or not _is_there(row, "rated"):
                yield finding("ratio_without_operands", row.line, "lint.ratio_without_operands", text=cell.text)
            continue
        if not rated:
            yield finding("share_not_positive", row.line, "lint.share_not_positive", what=cell.head, share=cell.text)
            continue
        computed = value / rated
        if abs(computed - printed.amount) * 100 > limit:
            operands = {"value": row.cells["value"].text, "peak": row.cells["rated"].text}
            params = {"what": cell.head, "share": cell.text, "computed": units.percent(computed), **operands}
            yield finding("ratio_does_not_recompute", row.line, "doubt.ratio_does_not_recompute", **params)
            if printed.is_printed_of(100 * computed / 1.024):
                yield finding("decimal_unit", row.line, "lint.binary_thousand", share=cell.text, peak=operands["peak"])


def _operand(row: HardwareRow, name: str) -> float | None:
    """In base units. A number without a unit has that of the other."""
    cell, other = row.cells.get(name), row.cells.get("rated" if name == "value" else "value")
    found = cell.quantity if cell is not None else None
    if found is None:
        return None
    beside = other.quantity if other is not None else None
    if not found.unit and beside is not None and beside.unit:
        return Quantity(found.value, beside.unit, found.decimals).amount
    return found.amount


def _is_there(row: HardwareRow, name: str) -> bool:
    cell = row.cells.get(name)
    return cell is not None and not cell.is_empty


def missing_units(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for name in ("value", "rated"):
            cell = row.cells.get(name)
            found = cell.quantity if cell is not None else None
            if cell is not None and found is not None and not found.unit:
                yield finding("unit_missing", row.line, "lint.unit_missing", what=cell.head, text=cell.text)


def unread_cells(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for cell in row.cells.values():
            if cell.name != "item" and not cell.is_empty and cell.quantity is None:
                yield finding("unread_cell", row.line, "lint.unread_cell", column=cell.head, text=cell.text)


def capacity(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        if row.subject != "capacity":
            continue
        value, rated = _operand(row, "value"), _operand(row, "rated")
        if value is None or rated is None or value <= rated:
            continue
        used, total = value / units.GIB, rated / units.GIB
        params = {"used": f"{used:.2f}", "total": f"{total:.2f}"}
        yield finding("over_capacity", row.line, "doubt.over_capacity", what=row.cells["value"].head, **params)
        if is_gb_for_gib(used, total):
            figures = {"value": f"{used:.2f}", "total": f"{total:.2f}", "gib": f"{used * GIB_PER_GB:.2f}"}
            yield finding("decimal_unit", row.line, "doubt.decimal_unit", what=row.cells["value"].head, **figures)


def rates(context: HardwareContext) -> Iterator[PageFinding]:
    """Against the card's peaks for the precision that the page is about."""
    stated = context.page.precision
    precision = stated[0] if stated else context.page.path_precision
    for row in context.page.rows:
        for name in ("value", "wall_rate", "kernel_rate"):
            cell = row.cells.get(name)
            found = cell.quantity if cell is not None else None
            if found is not None and found.kind == "FLOP/s" and precision in PEAK_ROWS:
                yield from _rate(context, row, precision, found.amount)
            elif found is not None and row.subject == "bandwidth" and cell is not None:
                yield from _bandwidth(context, row, cell.head, found)


def _rate(context: HardwareContext, row: HardwareRow, precision: str, rate: float) -> Iterator[PageFinding]:
    peak = context.peak(precision)
    if peak is None or rate <= peak:
        return
    peaks = {name: found for name in PEAK_ROWS if (found := context.peak(name)) is not None}
    params = {"rate": units.teraflops(rate), "peak": units.teraflops(peak), "precision": precision}
    if precision == "fp32" and explaining_row(rate, precision, peaks) == "tf32":
        other = units.teraflops(peaks["tf32"])
        yield finding("tf32_called_fp32", row.line, "doubt.tf32_called_fp32", other=other, **params)
    else:
        yield finding("above_peak", row.line, "doubt.above_peak", **params)


def _bandwidth(context: HardwareContext, row: HardwareRow, head: str, found: Quantity) -> Iterator[PageFinding]:
    peak = context.peak("memory_bandwidth")
    if peak is not None and found.kind == "B/s" and found.amount > peak:
        params = {"what": head, "value": f"{found.amount / 1e9:g} GB/s", "peak": f"{peak / 1e9:g} GB/s"}
        yield finding("above_bandwidth", row.line, "doubt.above_bandwidth", **params)


def far_below_peak(context: HardwareContext) -> Iterator[PageFinding]:
    limit = rules()["far_below_peak"].limits["share"]
    for row in context.page.rows:
        share = row.amount("ratio")
        if row.subject == "compute" and share is not None and 0 < share < limit:
            params = {"what": row.cells["ratio"].head, "share": row.cells["ratio"].text, "limit": units.percent(limit)}
            yield finding("far_below_peak", row.line, "doubt.far_below_peak", **params)


def rated_values(context: HardwareContext) -> Iterator[PageFinding]:
    """The page's own against the card's, and its two TDPs against each other."""
    limit, stated = rules()["rated_differs"].limits["difference"], context.page.precision
    for row in context.page.rows:
        name = {"compute": stated[0] if stated else "", "bandwidth": "memory_bandwidth"}.get(row.subject, "")
        rated, peak = _operand(row, "rated"), context.peak(name) if name else None
        if rated and peak and abs(rated - peak) > limit * peak:
            params = {"what": row.cells["rated"].head, "text": row.cells["rated"].text, "has": f"{peak:g}"}
            yield finding("rated_differs", row.line, "lint.rated_differs", **params)
    yield from _tdps(context)


def _tdps(context: HardwareContext) -> Iterator[PageFinding]:
    found = [(fact.line, fact.value) for fact in context.page.facts("tdp")]
    found += [(row.line, row.cells["card_tdp"].text) for row in context.page.rows if "card_tdp" in row.cells]
    peak = context.peak("tdp")
    seen: set[str] = set()
    for line, text in found:
        watts = _watts(text)
        if watts is None or text in seen:
            continue
        if peak is not None and watts != peak:
            yield finding("rated_differs", line, "lint.rated_differs", what="TDP", text=text, has=f"{peak:g} W")
        elif peak is None and seen:
            yield finding(
                "rated_differs", line, "lint.rated_differs", what="TDP", text=text, has=", ".join(sorted(seen))
            )
        seen.add(text)


def _watts(text: str) -> float | None:
    found = quantity(text)
    return found.amount if found is not None and found.kind == "W" else None


# --- power ----------------------------------------------------------------------------------------------------------


def power(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for scope in ("system", "card"):
            mean, high, deviation = (row.amount(f"{scope}_{name}") for name in ("mean", "max", "deviation"))
            if mean is None or high is None:
                continue
            figures = {"mean": f"{mean:.1f}", "high": f"{high:.1f}"}
            what = row.cells[f"{scope}_max"].head
            if mean > high:
                yield finding("mean_above_max", row.line, "doubt.mean_above_max", what=what, **figures)
            elif deviation is not None:
                yield from _deviation(row, what, mean, high, deviation)


def _deviation(row: HardwareRow, what: str, mean: float, high: float, deviation: float) -> Iterator[PageFinding]:
    largest = largest_deviation(mean, high)
    figures = {"mean": f"{mean:.1f}", "high": f"{high:.1f}", "deviation": f"{deviation:.1f}"}
    if deviation > largest * 1.001 + 0.05:
        params = {"what": what, "largest": f"{largest:.1f}", **figures}
        yield finding("deviation_not_possible", row.line, "lint.deviation_not_possible", **params)
    elif deviation == 0 and high - mean > 0.1:
        yield finding("deviation_not_possible", row.line, "lint.no_deviation", what=what, **figures)
    elif deviation == 0 or abs(deviation - (high - mean)) < 0.05:
        yield finding("constant_telemetry", row.line, "lint.constant_telemetry", what=what, **figures)


def card_power(context: HardwareContext) -> Iterator[PageFinding]:
    limits, cards = rules()["over_tdp"].limits, context.page.count("cards_per_server")
    best = max((share for row in context.page.rows if (share := row.amount("ratio")) is not None), default=0.0)
    for row in context.page.rows:
        high, mean, system = (row.amount(name) for name in ("card_max", "card_mean", "system_mean"))
        tdp = row.amount("card_tdp") or context.peak("tdp")
        if high is not None and tdp:
            figures = {"watts": f"{high:.1f}", "tdp": f"{tdp:g}"}
            if high > limits["share"] * tdp:
                yield finding("over_tdp", row.line, "doubt.over_tdp", what=row.cells["card_max"].head, **figures)
            if row.subject == "" and is_idle(best, high, tdp, rules()["idle_power"].limits):
                yield finding("idle_power", row.line, "doubt.idle_power", share=units.percent(best), **figures)
        if mean is not None and system is not None and cards and system < mean * cards:
            of_system = {"system": f"{system:.1f}", "mean": f"{mean:.1f}"}
            yield finding("system_below_cards", row.line, "lint.system_below_cards", cards=cards, **of_system)


# --- labels ---------------------------------------------------------------------------------------------------------


def card_counts(context: HardwareContext) -> Iterator[PageFinding]:
    """`16卡平均` in a head, against the servers and the cards in each."""
    servers, cards = context.page.count("servers"), context.page.count("cards_per_server")
    if servers is None or cards is None:
        return
    for row in context.page.rows:
        for cell in row.cells.values():
            said = cell.said_cards
            if said is not None and said != servers * cards:
                shape = f"{servers}x{cards}"
                params = {"text": cell.head, "nodes": servers, "said": said, "shape": shape, "cards": servers * cards}
                yield finding("card_count", row.line, "lint.card_count", **params)
                return


def precision_label(context: HardwareContext) -> Iterator[PageFinding]:
    stated, path = context.page.precision, context.page.path_precision
    if stated is not None and path and stated[0] != path:
        yield finding("precision_differs", stated[1], "lint.precision_of_path", precision=stated[0], path=path)


def kernel_times(context: HardwareContext) -> Iterator[PageFinding]:
    limit = rules()["kernel_above_wall"].limits["share"]
    for row in context.page.rows:
        kernel, wall = row.amount("kernel_time"), row.amount("wall_time")
        if kernel is not None and wall is not None and kernel > wall * limit:
            figures = {"kernel": row.cells["kernel_time"].text, "wall": row.cells["wall_time"].text}
            yield finding("kernel_above_wall", row.line, "lint.kernel_above_wall", item=row.item, **figures)


def empty_cells(context: HardwareContext) -> Iterator[PageFinding]:
    """Of values, rated values and ratios: other cells are often not applicable."""
    cells = [row.cells[name] for row in context.page.rows for name in ("value", "rated", "ratio") if name in row.cells]
    empty = [cell for cell in cells if cell.is_empty]
    if empty:
        params = {"count": len(empty), "all": len(cells), "lines": sorted({cell.line for cell in empty})}
        yield finding("empty_cells", empty[0].line, "lint.empty_cells", **params)


CHECKS = (
    empty_cells,
    unread_cells,
    missing_units,
    shares,
    ratios,
    capacity,
    rates,
    far_below_peak,
    rated_values,
    power,
    card_power,
    card_counts,
    precision_label,
    kernel_times,
)

"""Pages of the hardware itself, and what is checked on them.

Base pages have a value, its rated value and their ratio; operator pages have times and shares of a peak. Both have the
power that was read beside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from flagperf import units
from flagperf.plausibility.row_checks import (
    ABOVE_BANDWIDTH,
    DECIMAL_UNIT,
    FAR_BELOW_PEAK,
    OVER_CAPACITY,
    RATIO_DOES_NOT_RECOMPUTE,
    SHARE_NOT_POSITIVE,
)
from flagperf.plausibility.rules import GIB_PER_GB, is_gb_for_gib, is_idle, largest_deviation
from flagperf.plausibility.run_checks import IDLE_POWER, MEAN_ABOVE_MAX, OVER_TDP, UTILISATION_OVER_100
from flagperf_publish.published.findings import (
    CARD_COUNT,
    EMPTY_CELLS,
    PRECISION_DIFFERS,
    UNREAD_CELL,
    PageFinding,
    above_peak,
    finding,
    page_rule,
)
from flagperf_publish.published.page_source import (
    PageFact,
    Quantity,
    SourcePage,
    folded,
    is_nothing,
    named,
    quantity,
    without_note,
    words,
)
from flagperf_publish.published.result_pages import PageCard

SUBJECTS = ("compute", "bandwidth", "capacity")

PRECISION = re.compile(r"(?<![a-z0-9])(fp64|fp32|tf32|fp16|bf16|fp8|int32|int16|int8)(?![0-9])", re.IGNORECASE)

PEAK_ROWS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


class HardwareCell(msgspec.Struct, frozen=True):
    name: str
    """A key of [hardware] in words.toml."""
    head: str
    text: str
    line: int

    @property
    def is_empty(self) -> bool:
        return is_nothing(self.text)

    @property
    def quantity(self) -> Quantity | None:
        return None if self.is_empty else quantity(self.text)


class HardwareRow(msgspec.Struct, frozen=True):
    line: int
    item: str
    """What the first cell calls it."""
    subject: str
    """A key of SUBJECTS, by the heads. Empty for links, operators and power."""
    cells: dict[str, HardwareCell]

    def quantity(self, name: str) -> Quantity | None:
        cell = self.cells.get(name)
        return cell.quantity if cell is not None else None

    def amount(self, name: str) -> float | None:
        found = self.quantity(name)
        return found.amount if found is not None else None

    def is_empty(self, name: str) -> bool:
        return name not in self.cells or self.cells[name].is_empty


class HardwarePage(msgspec.Struct, frozen=True):
    source: SourcePage
    rows: tuple[HardwareRow, ...]

    def facts(self, name: str) -> Iterator[PageFact]:
        return (fact for fact in self.source.facts if named(fact.key, words().facts) == name)

    def count(self, name: str) -> int | None:
        """Return a number of servers or cards, or None if the page gives none or several that differ."""
        found = {fact.value for fact in self.facts(name)}
        return int(found.pop()) if len(found) == 1 and next(iter(found)).isdigit() else None

    @property
    def precision(self) -> tuple[str, int] | None:
        """The precision in the head of a result, and its line."""
        for row in self.rows:
            for cell in row.cells.values():
                found = PRECISION.search(cell.head)
                if found and cell.name == "value":
                    return found[1].lower(), cell.line
        return None

    @property
    def path_precision(self) -> str:
        """The precision in the name of the file or its folders, where operator pages say it."""
        found = PRECISION.findall("/".join(self.source.path.split("/")[-6:]))
        return found[-1].lower() if found else ""


class HardwareContext(msgspec.Struct, frozen=True):
    """A page with the cards that it names."""

    page: HardwarePage
    cards: tuple[PageCard, ...]

    def peak(self, row: str) -> float | None:
        """Return a peak of the cards, or None if it is unknown or if the cards differ."""
        peaks = {card.peaks[row] for card in self.cards if row in card.peaks}
        return peaks.pop() if len(peaks) == 1 else None


def hardware_page(page: SourcePage) -> HardwarePage | None:
    """Read the tables whose first column names the item. Return None for a page without any."""
    spellings, rows = words().hardware, []
    for table in page.tables:
        if folded(table.heads[0]) not in map(folded, spellings["item"]):
            continue
        names = [_name(head) for head in table.heads]
        heads = " ".join(table.heads)
        subject = next((key for key in SUBJECTS if any(word in heads for word in spellings[key])), "")
        for row in table.rows:
            if not row.is_glued and len(row.cells) == len(names):
                columns = zip(names, table.heads, row.cells, strict=True)
                cells = {
                    name: HardwareCell(name, head, without_note(text)[0], row.line)
                    for name, head, text in columns
                    if name
                }
                rows.append(HardwareRow(row.line, row.cells[0], subject, cells))
    return HardwarePage(page, tuple(rows)) if rows else None


def _name(head: str) -> str:
    """Return the key of [hardware] for a head, by all of it, else by the part before its brackets."""
    spellings = words().hardware
    exact = named(head, spellings)
    if exact:
        return exact
    bare = folded(head).partition("(")[0]
    for key in ("value", "rated"):
        if bare.endswith(tuple(map(folded, spellings[key]))):
            return key
    others = [key for key in spellings if key not in ("value", "rated", "item", *SUBJECTS)]
    return next((key for key in others if bare in map(folded, spellings[key])), "")


def hardware_case_of(page: HardwarePage) -> str:
    """Return the case that has the figure of a base page. Empty for links and operators, whose conventions differ."""
    subjects = {row.subject for row in page.rows if "value" in row.cells}
    return next((item.case for item in words().imports if item.subject in subjects), "")


# --- values, rated values and ratios --------------------------------------------------------------------------------


def empty_cells(context: HardwareContext) -> Iterator[PageFinding]:
    """Find values, rated values and ratios that are empty. Other cells are often not applicable."""
    cells = [row.cells[name] for row in context.page.rows for name in ("value", "rated", "ratio") if name in row.cells]
    empty = [cell for cell in cells if cell.is_empty]
    if empty:
        params = {"count": len(empty), "all": len(cells), "lines": sorted({cell.line for cell in empty})}
        yield finding(EMPTY_CELLS, empty[0].line, "lint.empty_cells", **params)


def unread_cells(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for cell in row.cells.values():
            if cell.name != "item" and not cell.is_empty and cell.quantity is None:
                yield finding(UNREAD_CELL, row.line, "lint.unread_cell", column=cell.head, text=cell.text)


UNIT_MISSING = page_rule("unit_missing", "65.25 of 64GiB: base/benchmarks/main_memory-capacity/metax/C550/README.md")


def missing_units(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for name in ("value", "rated"):
            found = row.quantity(name)
            if found is not None and not found.unit:
                cell = row.cells[name]
                yield finding(UNIT_MISSING, row.line, "lint.unit_missing", what=cell.head, text=cell.text)


def shares(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for name in ("wall_share", "kernel_share", "ratio"):
            share = row.amount(name)
            if share is None:
                continue
            cell = row.cells[name]
            if share > 1:
                params = {"metric": cell.head, "share": cell.text}
                yield finding(UTILISATION_OVER_100, row.line, "doubt.utilisation_over_100", **params)
            elif share <= 0:
                yield finding(SHARE_NOT_POSITIVE, row.line, "lint.share_not_positive", what=cell.head, share=cell.text)


RATIO_WITHOUT_OPERANDS = page_rule(
    "ratio_without_operands", "79.3 % of nothing: base/toolkits/computation-INT8/metax/C550/README.md"
)


def ratios(context: HardwareContext) -> Iterator[PageFinding]:
    limit = RATIO_DOES_NOT_RECOMPUTE.limits["points"]
    for row in context.page.rows:
        printed = row.quantity("ratio")
        if printed is None:
            continue
        cell, value, rated = row.cells["ratio"], _operand(row, "value"), _operand(row, "rated")
        if value is None or rated is None:
            if row.is_empty("value") or row.is_empty("rated"):
                yield finding(RATIO_WITHOUT_OPERANDS, row.line, "lint.ratio_without_operands", text=cell.text)
        elif not rated:
            yield finding(SHARE_NOT_POSITIVE, row.line, "lint.share_not_positive", what=cell.head, share=cell.text)
        elif abs(value / rated - printed.amount) * 100 > limit:
            computed = value / rated
            operands = {"value": row.cells["value"].text, "peak": row.cells["rated"].text}
            params = {"what": cell.head, "share": cell.text, "computed": units.percent(computed), **operands}
            yield finding(RATIO_DOES_NOT_RECOMPUTE, row.line, "doubt.ratio_does_not_recompute", **params)
            if printed.is_printed_of(100 * computed / 1.024):
                yield finding(DECIMAL_UNIT, row.line, "lint.binary_thousand", share=cell.text, peak=operands["peak"])


def _operand(row: HardwareRow, name: str) -> float | None:
    """Return a value or rated value in base units. A number without a unit has the unit of the other."""
    found, other = row.quantity(name), row.quantity("rated" if name == "value" else "value")
    if found is None:
        return None
    if not found.unit and other is not None and other.unit:
        return Quantity(found.value, other.unit, found.decimals).amount
    return found.amount


def capacity(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        value, rated = _operand(row, "value"), _operand(row, "rated")
        if row.subject != "capacity" or value is None or rated is None or value <= rated:
            continue
        what, used, total = row.cells["value"].head, value / units.GIB, rated / units.GIB
        figures = {"used": f"{used:.2f}", "total": f"{total:.2f}"}
        yield finding(OVER_CAPACITY, row.line, "doubt.over_capacity", what=what, **figures)
        if is_gb_for_gib(used, total):
            figures = {"value": f"{used:.2f}", "total": f"{total:.2f}", "gib": f"{used * GIB_PER_GB:.2f}"}
            yield finding(DECIMAL_UNIT, row.line, "doubt.decimal_unit", what=what, **figures)


def rates(context: HardwareContext) -> Iterator[PageFinding]:
    """Compare rates with the peaks of the card for the precision that the page is about."""
    stated = context.page.precision
    precision = stated[0] if stated else context.page.path_precision
    bandwidth = context.peak("memory_bandwidth")
    peaks = {name: peak for name in PEAK_ROWS if (peak := context.peak(name)) is not None}
    for row in context.page.rows:
        for name in ("value", "wall_rate", "kernel_rate"):
            found = row.quantity(name)
            if found is None:
                continue
            if found.kind == "FLOP/s" and precision in PEAK_ROWS:
                yield from above_peak(row.line, found.amount, precision, peaks.get(precision), peaks)
            elif row.subject == "bandwidth" and bandwidth and found.kind == "B/s" and found.amount > bandwidth:
                figures = {"value": f"{found.amount / 1e9:g} GB/s", "peak": f"{bandwidth / 1e9:g} GB/s"}
                head = row.cells[name].head
                yield finding(ABOVE_BANDWIDTH, row.line, "doubt.above_bandwidth", what=head, **figures)


def far_below_peak(context: HardwareContext) -> Iterator[PageFinding]:
    limit = FAR_BELOW_PEAK.limits["share"]
    for row in context.page.rows:
        share = row.amount("ratio")
        if row.subject == "compute" and share is not None and 0 < share < limit:
            params = {"what": row.cells["ratio"].head, "share": row.cells["ratio"].text, "limit": units.percent(limit)}
            yield finding(FAR_BELOW_PEAK, row.line, "doubt.far_below_peak", **params)


RATED_DIFFERS = page_rule(
    "rated_differs",
    "C550 at 450 W and at 350 W: base/benchmarks/main_memory-bandwidth/metax/C550/README.md",
    difference=0.01,
)


def rated_values(context: HardwareContext) -> Iterator[PageFinding]:
    """Compare the rated values of the page with those of the card, and its TDPs with each other."""
    limit, stated = RATED_DIFFERS.limits["difference"], context.page.precision
    for row in context.page.rows:
        name = {"compute": stated[0] if stated else "", "bandwidth": "memory_bandwidth"}.get(row.subject, "")
        rated, peak = _operand(row, "rated"), context.peak(name) if name else None
        if rated and peak and abs(rated - peak) > limit * peak:
            params = {"what": row.cells["rated"].head, "text": row.cells["rated"].text, "has": f"{peak:g}"}
            yield finding(RATED_DIFFERS, row.line, "lint.rated_differs", **params)

    tdp = context.peak("tdp")
    stated_tdps = [(fact.line, fact.value) for fact in context.page.facts("tdp")]
    stated_tdps += [(row.line, row.cells["card_tdp"].text) for row in context.page.rows if "card_tdp" in row.cells]
    seen: list[str] = []
    for line, text in stated_tdps:
        watts = quantity(text)
        if watts is None or watts.kind != "W" or text in seen:
            continue
        if tdp is not None and watts.amount != tdp:
            yield finding(RATED_DIFFERS, line, "lint.rated_differs", what="TDP", text=text, has=f"{tdp:g} W")
        elif tdp is None and seen:
            yield finding(RATED_DIFFERS, line, "lint.rated_differs", what="TDP", text=text, has=", ".join(sorted(seen)))
        seen.append(text)


# --- power ----------------------------------------------------------------------------------------------------------

DEVIATION_NOT_POSSIBLE = page_rule(
    "deviation_not_possible",
    "card power 338.4 W on average, 412.0 W at most, with a deviation of 338.6 W: "
    "base/benchmarks/computation-BF16/nvidia/A100/README.md",
)
CONSTANT_TELEMETRY = page_rule(
    "constant_telemetry",
    "1805.0, 1805.0 and 0.0 W: base/benchmarks/computation-FP16/iluvatar/BI150/README.md; 29 of 48 base rows",
)


def power(context: HardwareContext) -> Iterator[PageFinding]:
    """Check mean, maximum and deviation against each other, of the system and of one card."""
    for row in context.page.rows:
        for scope in ("system", "card"):
            mean, high, deviation = (row.amount(f"{scope}_{name}") for name in ("mean", "max", "deviation"))
            if mean is None or high is None:
                continue
            params = {"what": row.cells[f"{scope}_max"].head, "mean": f"{mean:.1f}", "high": f"{high:.1f}"}
            if mean > high:
                yield finding(MEAN_ABOVE_MAX, row.line, "doubt.mean_above_max", **params)
            if mean > high or deviation is None:
                continue
            largest = largest_deviation(mean, high)
            params["deviation"] = f"{deviation:.1f}"
            if deviation > largest * 1.001 + 0.05:
                params["largest"] = f"{largest:.1f}"
                yield finding(DEVIATION_NOT_POSSIBLE, row.line, "lint.deviation_not_possible", **params)
            elif deviation == 0 and high - mean > 0.1:
                yield finding(DEVIATION_NOT_POSSIBLE, row.line, "lint.no_deviation", **params)
            elif deviation == 0 or abs(deviation - (high - mean)) < 0.05:
                yield finding(CONSTANT_TELEMETRY, row.line, "lint.constant_telemetry", **params)


SYSTEM_BELOW_CARDS = page_rule("system_below_cards", "193 to 215 W for a whole server: operation/benchmarks/mm/metax")


def card_power(context: HardwareContext) -> Iterator[PageFinding]:
    limits, cards = OVER_TDP.limits, context.page.count("cards_per_server")
    best = max((share for row in context.page.rows if (share := row.amount("ratio")) is not None), default=0.0)
    for row in context.page.rows:
        high, mean, system = (row.amount(name) for name in ("card_max", "card_mean", "system_mean"))
        tdp = row.amount("card_tdp") or context.peak("tdp")
        if high is not None and tdp:
            figures = {"watts": f"{high:.1f}", "tdp": f"{tdp:g}"}
            if high > limits["share"] * tdp:
                yield finding(OVER_TDP, row.line, "doubt.over_tdp", what=row.cells["card_max"].head, **figures)
            if row.subject == "" and is_idle(best, high, tdp, IDLE_POWER.limits):
                yield finding(IDLE_POWER, row.line, "doubt.idle_power", share=units.percent(best), **figures)
        if mean is not None and system is not None and cards and system < mean * cards:
            of_system = {"system": f"{system:.1f}", "mean": f"{mean:.1f}"}
            yield finding(SYSTEM_BELOW_CARDS, row.line, "lint.system_below_cards", cards=cards, **of_system)


# --- labels ---------------------------------------------------------------------------------------------------------


def card_counts(context: HardwareContext) -> Iterator[PageFinding]:
    """Compare `16卡平均` in a head with the servers and the cards in each."""
    servers, cards = context.page.count("servers"), context.page.count("cards_per_server")
    if servers is None or cards is None:
        return
    for row in context.page.rows:
        for cell in row.cells.values():
            said = re.search(rf"\((\d{{1,5}}){words().shapes.card}", folded(cell.head))
            if said and int(said[1]) != servers * cards:
                shape = {"shape": f"{servers}x{cards}", "cards": servers * cards}
                params = {"text": cell.head, "nodes": servers, "said": int(said[1]), **shape}
                yield finding(CARD_COUNT, row.line, "lint.card_count", **params)
                return


def precision_label(context: HardwareContext) -> Iterator[PageFinding]:
    stated, path = context.page.precision, context.page.path_precision
    if stated is not None and path and stated[0] != path:
        yield finding(PRECISION_DIFFERS, stated[1], "lint.precision_of_path", precision=stated[0], path=path)


KERNEL_ABOVE_WALL = page_rule(
    "kernel_above_wall",
    "group_norm in FP16: 189.44 us in the kernel, 173.57 us on the wall clock: "
    "operation/benchmarks/group_norm/nvidia/A100_40_SXM/FP16_README.md",
    share=1.02,
)


def kernel_times(context: HardwareContext) -> Iterator[PageFinding]:
    limit = KERNEL_ABOVE_WALL.limits["share"]
    for row in context.page.rows:
        kernel, wall = row.amount("kernel_time"), row.amount("wall_time")
        if kernel is not None and wall is not None and kernel > wall * limit:
            figures = {"kernel": row.cells["kernel_time"].text, "wall": row.cells["wall_time"].text}
            yield finding(KERNEL_ABOVE_WALL, row.line, "lint.kernel_above_wall", item=row.item, **figures)


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

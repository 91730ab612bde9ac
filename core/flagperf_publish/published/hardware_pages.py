"""Base and operator pages with their checks."""

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
from flagperf.plausibility.rules import GIB_PER_GB, Rule, explaining_row, is_gb_for_gib, is_idle, largest_deviation
from flagperf.plausibility.run_checks import (
    ABOVE_PEAK,
    IDLE_POWER,
    MEAN_ABOVE_MAX,
    OVER_TDP,
    TF32_CALLED_FP32,
    UTILISATION_OVER_100,
)
from flagperf_publish.published.findings import (
    CARD_COUNT,
    EMPTY_CELLS,
    PRECISION_DIFFERS,
    UNREAD_CELL,
    PageFinding,
    finding,
)
from flagperf_publish.published.page_cards import Card, Cards
from flagperf_publish.published.page_source import (
    PageFact,
    Quantity,
    SourcePage,
    SourceTable,
    folded,
    is_nothing,
    named,
    quantity,
    without_note,
    words,
)

# Pages of the hardware itself: base pages (a value, its rated value, their ratio) and operator pages, with the power
# that was read beside.


SUBJECTS = ("compute", "bandwidth", "capacity")

PRECISIONS = re.compile(r"(?<![a-z0-9])(fp64|fp32|tf32|fp16|bf16|fp8|int32|int16|int8)(?![0-9])", re.IGNORECASE)


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

    @property
    def said_cards(self) -> int | None:
        """`16` of `单卡平均功耗(16卡平均)`."""
        found = re.search(rf"\((\d{{1,5}}){words().shapes.card}", folded(self.head))
        return int(found[1]) if found else None


class HardwareRow(msgspec.Struct, frozen=True):
    line: int
    item: str
    """What the first cell calls it."""
    subject: str
    """A key of SUBJECTS, by the heads. Empty for links, operators and power."""
    cells: dict[str, HardwareCell]

    def amount(self, name: str) -> float | None:
        cell = self.cells.get(name)
        found = cell.quantity if cell is not None else None
        return found.amount if found is not None else None


class HardwarePage(msgspec.Struct, frozen=True):
    source: SourcePage
    rows: tuple[HardwareRow, ...]

    def fact(self, name: str) -> PageFact | None:
        return next(self.facts(name), None)

    def facts(self, name: str) -> Iterator[PageFact]:
        return (fact for fact in self.source.facts if named(fact.key, words().facts) == name)

    def count(self, name: str) -> int | None:
        """A number of servers or cards. Empty if the page gives several that differ."""
        found = {fact.value for fact in self.facts(name)}
        return int(found.pop()) if len(found) == 1 and next(iter(found)).isdigit() else None

    @property
    def precision(self) -> tuple[str, int] | None:
        """By the head of its result, with the line."""
        for row in self.rows:
            for cell in row.cells.values():
                found = PRECISIONS.search(cell.head)
                if found and cell.name == "value":
                    return found[1].lower(), cell.line
        return None

    @property
    def path_precision(self) -> str:
        """By the name of the file or its folders, which is where operator pages say it."""
        found = PRECISIONS.findall("/".join(self.source.path.split("/")[-6:]))
        return found[-1].lower() if found else ""


def hardware_page(page: SourcePage) -> HardwarePage | None:
    rows = [row for table in page.tables if _is_hardware(table) for row in _rows(table)]
    return HardwarePage(page, tuple(rows)) if rows else None


def _is_hardware(table: SourceTable) -> bool:
    return folded(table.heads[0]) in map(folded, words().hardware["item"])


def _rows(table: SourceTable) -> Iterator[HardwareRow]:
    names = [_name(head) for head in table.heads]
    heads = " ".join(table.heads)
    subject = next((key for key in SUBJECTS if any(word in heads for word in words().hardware[key])), "")
    for row in table.rows:
        if row.is_glued or len(row.cells) != len(names):
            continue
        cells = {
            name: HardwareCell(name, head, without_note(text)[0], row.line)
            for name, head, text in zip(names, table.heads, row.cells, strict=True)
            if name
        }
        yield HardwareRow(row.line, row.cells[0], subject, cells)


def _name(head: str) -> str:
    """Exactly, else by what it says before its brackets."""
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


# Checks of base and operator pages: ratios, peaks, and the power that was read beside.


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
                yield finding(UTILISATION_OVER_100, row.line, "doubt.utilisation_over_100", **params)
            elif share <= 0:
                yield finding(SHARE_NOT_POSITIVE, row.line, "lint.share_not_positive", what=cell.head, share=cell.text)


RATIO_WITHOUT_OPERANDS = Rule(
    "ratio_without_operands",
    of=("page",),
    effect="reported",
    published="79.3 % of nothing: base/toolkits/computation-INT8/metax/C550/README.md",
)


def ratios(context: HardwareContext) -> Iterator[PageFinding]:
    limit = RATIO_DOES_NOT_RECOMPUTE.limits["points"]
    for row in context.page.rows:
        cell = row.cells.get("ratio")
        printed = cell.quantity if cell is not None else None
        if cell is None or printed is None:
            continue
        value, rated = _operand(row, "value"), _operand(row, "rated")
        if value is None or rated is None:
            if not _is_there(row, "value") or not _is_there(row, "rated"):
                yield finding(RATIO_WITHOUT_OPERANDS, row.line, "lint.ratio_without_operands", text=cell.text)
            continue
        if not rated:
            yield finding(SHARE_NOT_POSITIVE, row.line, "lint.share_not_positive", what=cell.head, share=cell.text)
            continue
        computed = value / rated
        if abs(computed - printed.amount) * 100 > limit:
            operands = {"value": row.cells["value"].text, "peak": row.cells["rated"].text}
            params = {"what": cell.head, "share": cell.text, "computed": units.percent(computed), **operands}
            yield finding(RATIO_DOES_NOT_RECOMPUTE, row.line, "doubt.ratio_does_not_recompute", **params)
            if printed.is_printed_of(100 * computed / 1.024):
                yield finding(DECIMAL_UNIT, row.line, "lint.binary_thousand", share=cell.text, peak=operands["peak"])


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


UNIT_MISSING = Rule(
    "unit_missing",
    of=("page",),
    effect="reported",
    published="65.25 of 64GiB: base/benchmarks/main_memory-capacity/metax/C550/README.md",
)


def missing_units(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for name in ("value", "rated"):
            cell = row.cells.get(name)
            found = cell.quantity if cell is not None else None
            if cell is not None and found is not None and not found.unit:
                yield finding(UNIT_MISSING, row.line, "lint.unit_missing", what=cell.head, text=cell.text)


def unread_cells(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        for cell in row.cells.values():
            if cell.name != "item" and not cell.is_empty and cell.quantity is None:
                yield finding(UNREAD_CELL, row.line, "lint.unread_cell", column=cell.head, text=cell.text)


def capacity(context: HardwareContext) -> Iterator[PageFinding]:
    for row in context.page.rows:
        if row.subject != "capacity":
            continue
        value, rated = _operand(row, "value"), _operand(row, "rated")
        if value is None or rated is None or value <= rated:
            continue
        used, total = value / units.GIB, rated / units.GIB
        params = {"used": f"{used:.2f}", "total": f"{total:.2f}"}
        yield finding(OVER_CAPACITY, row.line, "doubt.over_capacity", what=row.cells["value"].head, **params)
        if is_gb_for_gib(used, total):
            figures = {"value": f"{used:.2f}", "total": f"{total:.2f}", "gib": f"{used * GIB_PER_GB:.2f}"}
            yield finding(DECIMAL_UNIT, row.line, "doubt.decimal_unit", what=row.cells["value"].head, **figures)


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
        yield finding(TF32_CALLED_FP32, row.line, "doubt.tf32_called_fp32", other=other, **params)
    else:
        yield finding(ABOVE_PEAK, row.line, "doubt.above_peak", **params)


def _bandwidth(context: HardwareContext, row: HardwareRow, head: str, found: Quantity) -> Iterator[PageFinding]:
    peak = context.peak("memory_bandwidth")
    if peak is not None and found.kind == "B/s" and found.amount > peak:
        params = {"what": head, "value": f"{found.amount / 1e9:g} GB/s", "peak": f"{peak / 1e9:g} GB/s"}
        yield finding(ABOVE_BANDWIDTH, row.line, "doubt.above_bandwidth", **params)


def far_below_peak(context: HardwareContext) -> Iterator[PageFinding]:
    limit = FAR_BELOW_PEAK.limits["share"]
    for row in context.page.rows:
        share = row.amount("ratio")
        if row.subject == "compute" and share is not None and 0 < share < limit:
            params = {"what": row.cells["ratio"].head, "share": row.cells["ratio"].text, "limit": units.percent(limit)}
            yield finding(FAR_BELOW_PEAK, row.line, "doubt.far_below_peak", **params)


RATED_DIFFERS = Rule(
    "rated_differs",
    of=("page",),
    effect="reported",
    limits={"difference": 0.01},
    published="C550 at 450 W and at 350 W: base/benchmarks/main_memory-bandwidth/metax/C550/README.md",
)


def rated_values(context: HardwareContext) -> Iterator[PageFinding]:
    """The page's own against the card's, and its two TDPs against each other."""
    limit, stated = RATED_DIFFERS.limits["difference"], context.page.precision
    for row in context.page.rows:
        name = {"compute": stated[0] if stated else "", "bandwidth": "memory_bandwidth"}.get(row.subject, "")
        rated, peak = _operand(row, "rated"), context.peak(name) if name else None
        if rated and peak and abs(rated - peak) > limit * peak:
            params = {"what": row.cells["rated"].head, "text": row.cells["rated"].text, "has": f"{peak:g}"}
            yield finding(RATED_DIFFERS, row.line, "lint.rated_differs", **params)
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
            yield finding(RATED_DIFFERS, line, "lint.rated_differs", what="TDP", text=text, has=f"{peak:g} W")
        elif peak is None and seen:
            yield finding(RATED_DIFFERS, line, "lint.rated_differs", what="TDP", text=text, has=", ".join(sorted(seen)))
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
                yield finding(MEAN_ABOVE_MAX, row.line, "doubt.mean_above_max", what=what, **figures)
            elif deviation is not None:
                yield from _deviation(row, what, mean, high, deviation)


DEVIATION_NOT_POSSIBLE = Rule(
    "deviation_not_possible",
    of=("page",),
    effect="reported",
    published=(
        "card power 338.4 W on average, 412.0 W at most, with a deviation of 338.6 W: "
        "base/benchmarks/computation-BF16/nvidia/A100/README.md"
    ),
)

CONSTANT_TELEMETRY = Rule(
    "constant_telemetry",
    of=("page",),
    effect="reported",
    published=(
        "1805.0, 1805.0 and 0.0 W: base/benchmarks/computation-FP16/iluvatar/BI150/README.md; 29 of 48 base rows"
    ),
)


def _deviation(row: HardwareRow, what: str, mean: float, high: float, deviation: float) -> Iterator[PageFinding]:
    largest = largest_deviation(mean, high)
    figures = {"mean": f"{mean:.1f}", "high": f"{high:.1f}", "deviation": f"{deviation:.1f}"}
    if deviation > largest * 1.001 + 0.05:
        params = {"what": what, "largest": f"{largest:.1f}", **figures}
        yield finding(DEVIATION_NOT_POSSIBLE, row.line, "lint.deviation_not_possible", **params)
    elif deviation == 0 and high - mean > 0.1:
        yield finding(DEVIATION_NOT_POSSIBLE, row.line, "lint.no_deviation", what=what, **figures)
    elif deviation == 0 or abs(deviation - (high - mean)) < 0.05:
        yield finding(CONSTANT_TELEMETRY, row.line, "lint.constant_telemetry", what=what, **figures)


SYSTEM_BELOW_CARDS = Rule(
    "system_below_cards",
    of=("page",),
    effect="reported",
    published="193 to 215 W for a whole server: operation/benchmarks/mm/metax",
)


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
                yield finding(CARD_COUNT, row.line, "lint.card_count", **params)
                return


def precision_label(context: HardwareContext) -> Iterator[PageFinding]:
    stated, path = context.page.precision, context.page.path_precision
    if stated is not None and path and stated[0] != path:
        yield finding(PRECISION_DIFFERS, stated[1], "lint.precision_of_path", precision=stated[0], path=path)


KERNEL_ABOVE_WALL = Rule(
    "kernel_above_wall",
    of=("page",),
    effect="reported",
    limits={"share": 1.02},
    published=(
        "group_norm in FP16: 189.44 us in the kernel, 173.57 us on the wall clock: "
        "operation/benchmarks/group_norm/nvidia/A100_40_SXM/FP16_README.md"
    ),
)


def kernel_times(context: HardwareContext) -> Iterator[PageFinding]:
    limit = KERNEL_ABOVE_WALL.limits["share"]
    for row in context.page.rows:
        kernel, wall = row.amount("kernel_time"), row.amount("wall_time")
        if kernel is not None and wall is not None and kernel > wall * limit:
            figures = {"kernel": row.cells["kernel_time"].text, "wall": row.cells["wall_time"].text}
            yield finding(KERNEL_ABOVE_WALL, row.line, "lint.kernel_above_wall", item=row.item, **figures)


def empty_cells(context: HardwareContext) -> Iterator[PageFinding]:
    """Of values, rated values and ratios: other cells are often not applicable."""
    cells = [row.cells[name] for row in context.page.rows for name in ("value", "rated", "ratio") if name in row.cells]
    empty = [cell for cell in cells if cell.is_empty]
    if empty:
        params = {"count": len(empty), "all": len(cells), "lines": sorted({cell.line for cell in empty})}
        yield finding(EMPTY_CELLS, empty[0].line, "lint.empty_cells", **params)


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

# What `pages lint` says of a page.


class HardwareContext(msgspec.Struct, frozen=True):
    page: HardwarePage
    found: tuple[Card, ...]
    """The cards that the page names."""
    cards: Cards

    def peak(self, row: str) -> float | None:
        """Of its cards, if all that are known agree."""
        peaks = {card.peaks[row] for card in self.found if row in card.peaks}
        return peaks.pop() if len(peaks) == 1 else None

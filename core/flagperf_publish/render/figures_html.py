"""Charts, matrices and shares as figures: a title, the drawing, a legend and a remark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from flagperf.report import document as doc
from flagperf_publish.render.charts import MOST_NUMBERED, NUM_COLORS, chart_svg, histogram_svg, named_points
from flagperf_publish.render.html_cells import NO_VALUE, escape

NUM_PART_COLORS = 8
DEEP = 0.6
"""Darker cells get white numbers."""
LEAST_DEPTH = 0.05
NARROW_COLUMNS = 3
"""A matrix of more columns gets the whole width."""

Figure = doc.Chart | doc.Histogram | doc.Shares | doc.Bars | doc.Intervals | doc.HeatMap


def figure_html(block: Figure) -> str:
    match block:
        case doc.Chart():
            legend = _legend(_chart_keys(block))
            named = legend + _point_names(block)
            return _figure(block.title, block.y_title, chart_svg(block), block.x_title, named, block.remark)
        case doc.Histogram():
            keys = [(f"limit k{_color(index + 1)}", name) for index, (name, _) in enumerate(block.lines)]
            return _figure(block.title, block.y_title, histogram_svg(block), block.x_title, _legend(keys), block.remark)
        case doc.Shares():
            return _figure(block.title, "", _bars(block), "", "", block.remark, wide=True)
        case doc.Bars():
            keys = [("limit k2", block.limit)] if any(bar.limit is not None for bar in block.bars) else []
            return _figure(block.title, "", _levels(block), "", _legend(keys), block.remark)
        case doc.Intervals():
            return _figure(block.title, "", _ratios(block), "", "", block.remark, wide=True)
        case doc.HeatMap():
            is_wide = len(block.columns) > NARROW_COLUMNS
            return _figure(block.title, "", _matrix(block), "", "", block.remark, wide=is_wide)


def _figure(title: str, unit: str, drawing: str, under: str, legend: str, remark: str, *, wide: bool = False) -> str:
    parts = [
        f"<h3>{escape(title)}</h3>",
        f'<div class="unit">{escape(unit)}</div>' if under else "",
        drawing,
        f'<div class="under">{escape(under)}</div>' if under else "",
        f"<figcaption>{legend}{_remark(remark)}</figcaption>" if legend or remark else "",
    ]
    return f'<figure class="card{" wide" if wide else ""}">{"".join(parts)}</figure>'


def _remark(text: str) -> str:
    return f'<p class="remark">{escape(text)}</p>' if text else ""


# --- charts ---------------------------------------------------------------------------------------------------------


def _chart_keys(chart: doc.Chart) -> Iterator[tuple[str, str]]:
    """Classes of the key, and its text. A single line needs none if its name is the title."""
    is_plain = len(chart.series) == 1 and not chart.bands and chart.series[0].name == chart.title
    for index, series in enumerate(chart.series):
        if not is_plain:
            shape = "limit" if series.is_limit else "dot" if chart.marks else ""
            yield f"{shape} k{_color(index)}".strip(), series.name
    for name, axis in dict.fromkeys((band.name, band.axis) for band in chart.bands):
        yield f"area k{'interval' if axis == 'y' else 'band'}", name


def _point_names(chart: doc.Chart) -> str:
    """By the numbers in the drawing. Those of many are seen where a reader points at one."""
    names = named_points(chart)
    if not 0 < len(names) <= MOST_NUMBERED:
        return ""
    return f'<ol class="points">{"".join(f"<li>{escape(name)}</li>" for name in names)}</ol>'


def _color(index: int) -> int:
    return index % NUM_COLORS + 1


def _legend(keys: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> str:
    items = [f'<li><i class="{kind}"></i><span>{escape(name)}</span></li>' for kind, name in keys if name]
    return f'<ul class="legend">{"".join(items)}</ul>' if items else ""


# --- shares ---------------------------------------------------------------------------------------------------------


def _bars(block: doc.Shares) -> str:
    return f'<div class="bars">{"".join(_bar(block, index) for index in range(len(block.rows)))}</div>'


def _bar(block: doc.Shares, index: int) -> str:
    """Parts that are nothing are left out."""
    (name, amounts), texts = block.rows[index], block.texts[index]
    whole = sum(amounts) or 1.0
    shown = [place for place, amount in enumerate(amounts) if amount / whole >= 0.0005]
    pieces = [
        f'<span class="p{_part_color(place)}" style="flex:{amounts[place] / whole:.4f}" '
        f'title="{escape(block.parts[place])}"></span>'
        for place in shown
    ]
    keys = [
        f'<li><i class="p{_part_color(place)}"></i><span>{escape(block.parts[place])}</span>'
        f"<b>{escape(texts[place])}</b><em>{amounts[place] / whole:.1%}</em></li>"
        for place in shown
    ]
    head = f'<div class="name">{escape(name)}</div>'
    return f'<div>{head}<div class="bar">{"".join(pieces)}</div><ul class="parts">{"".join(keys)}</ul></div>'


def _part_color(place: int) -> int:
    return place % NUM_PART_COLORS + 1


# --- bars -----------------------------------------------------------------------------------------------------------


def _levels(block: doc.Bars) -> str:
    """A limit that is far above all values would make them vanish, so bars have at least a hair's width."""
    highest = max((max(bar.value, bar.limit or 0.0) for bar in block.bars), default=0.0) or 1.0
    return f'<div class="levels">{"".join(_level(bar, highest) for bar in block.bars)}</div>'


def _level(bar: doc.Bar, highest: float) -> str:
    limit = "" if bar.limit is None else f'<s style="left:{bar.limit / highest:.2%}"></s>'
    fill = f'<span style="width:{max(0.0, bar.value) / highest:.2%}"></span>'
    return (
        f'<div><div class="name"><span>{escape(bar.name)}</span><b>{escape(bar.text)}</b></div>'
        f'<div class="level">{fill}{limit}</div></div>'
    )


# --- ratios ---------------------------------------------------------------------------------------------------------

NARROWEST, WIDEST = math.log(1.1), math.log(4)
"""An axis of ratios reaches at least so far to either side of 1. Intervals alone make it reach no further than the
second; what is beyond is cut off at its end."""


def _ratios(block: doc.Intervals) -> str:
    values = [_distance(row.value) for row in block.rows]
    ends = [_distance(end) for row in block.rows for end in (row.low, row.high)]
    reach = 1.1 * max(*values, min(WIDEST, max(*ends, 0.0)), NARROWEST)
    return f'<div class="levels ratios">{"".join(_ratio(row, reach) for row in block.rows)}</div>'


def _ratio(row: doc.Interval, reach: float) -> str:
    """On a logarithmic axis: twice and half are as far from 1."""
    kind = {True: "good", False: "bad", None: "open"}[row.is_good]
    low, high = (_place(row.value if end is None else end, reach) for end in (row.low, row.high))
    bar = f'<span style="left:{low:.2%};width:{high - low:.2%}"></span>'
    drawn = f'{bar}<i style="left:{_place(row.value, reach):.2%}"></i>'
    return (
        f'<div><div class="name"><span>{escape(row.name)}</span><b>{escape(row.text)}</b></div>'
        f'<div class="range {kind}"><s></s>{drawn}</div></div>'
    )


def _distance(ratio: float | None) -> float:
    """From 1."""
    return abs(math.log(ratio)) if ratio else 0.0


def _place(ratio: float, reach: float) -> float:
    if ratio <= 0:
        return 0.0
    return min(1.0, max(0.0, 0.5 + math.log(ratio) / (2 * reach)))


# --- matrices -------------------------------------------------------------------------------------------------------


def _matrix(block: doc.HeatMap) -> str:
    known = [value for row in block.values for value in row if value is not None]
    low, high = (0.0, 1.0) if block.is_share else (min(known, default=0.0), max(known, default=1.0))
    heads = "".join(f"<th>{escape(name)}</th>" for name in block.columns)
    rows = [
        f"<tr><th>{escape(name)}</th>{''.join(_matrix_cell(value, low, high, block.is_share) for value in row)}</tr>"
        for name, row in zip(block.rows, block.values, strict=True)
    ]
    caption = f"{escape(block.y_title)} ↓ &nbsp; {escape(block.x_title)} →"
    head = f"<caption>{caption}</caption><thead><tr><th></th>{heads}</tr></thead>"
    return f'<div class="box plain"><table class="heat">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _matrix_cell(value: float | None, low: float, high: float, is_share: bool) -> str:
    if value is None:
        return f'<td style="--v:0">{NO_VALUE}</td>'
    depth = (value - low) / (high - low) if high > low else LEAST_DEPTH
    depth = min(1.0, max(LEAST_DEPTH, depth))
    text = f"{value:.0%}" if is_share else f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    return f'<td{" class=deep" if depth > DEEP else ""} style="--v:{depth:.2f}">{text}</td>'

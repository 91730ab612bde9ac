"""Charts, matrices and shares as figures: a title, the drawing, a legend and a remark."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
            return _chart(block)
        case doc.Histogram():
            keys = [(f"limit k{_color(index + 1)}", name) for index, (name, _) in enumerate(block.lines)]
            return _figure(block.title, block.y_title, histogram_svg(block), block.x_title, _legend(keys), block.remark)
        case doc.Shares():
            return _shares(block)
        case doc.Bars():
            return _bars(block)
        case doc.Intervals():
            return _ratios(block)
        case doc.HeatMap():
            return _matrix(block)


def _figure(title: str, unit: str, drawing: str, under: str, legend: str, remark: str, *, wide: bool = False) -> str:
    foot = legend + (f'<p class="remark">{escape(remark)}</p>' if remark else "")
    parts = [
        f"<h3>{escape(title)}</h3>",
        f'<div class="unit">{escape(unit)}</div>' if under else "",
        drawing,
        f'<div class="under">{escape(under)}</div>' if under else "",
        f"<figcaption>{foot}</figcaption>" if foot else "",
    ]
    return f'<figure class="card{" wide" if wide else ""}">{"".join(parts)}</figure>'


def _color(index: int) -> int:
    return index % NUM_COLORS + 1


def _legend(keys: Sequence[tuple[str, str]]) -> str:
    """Write classes of keys with their texts."""
    items = [f'<li><i class="{kind}"></i><span>{escape(name)}</span></li>' for kind, name in keys if name]
    return f'<ul class="legend">{"".join(items)}</ul>' if items else ""


def _chart(chart: doc.Chart) -> str:
    keys = [
        (f"{'limit' if series.is_limit else 'dot' if chart.marks else ''} k{_color(index)}".strip(), series.name)
        for index, series in enumerate(chart.series)
    ]
    if len(keys) == 1 and not chart.bands and chart.series[0].name == chart.title:
        keys = []
    for name, axis in dict.fromkeys((band.name, band.axis) for band in chart.bands):
        keys.append((f"area k{'interval' if axis == 'y' else 'band'}", name))
    legend, names = _legend(keys), named_points(chart)
    if 0 < len(names) <= MOST_NUMBERED:  # by the numbers in the drawing; those of many are seen by pointing at one
        legend += f'<ol class="points">{"".join(f"<li>{escape(name)}</li>" for name in names)}</ol>'
    return _figure(chart.title, chart.y_title, chart_svg(chart), chart.x_title, legend, chart.remark)


def _shares(block: doc.Shares) -> str:
    """Draw a bar for each row, without the parts that are nothing."""
    bars = []
    for (name, amounts), texts in zip(block.rows, block.texts, strict=True):
        whole = sum(amounts) or 1.0
        pieces, keys = [], []
        for place, (part, amount) in enumerate(zip(block.parts, amounts, strict=True)):
            if amount / whole >= 0.0005:
                color, title, share = f"p{place % NUM_PART_COLORS + 1}", escape(part), amount / whole
                pieces.append(f'<span class="{color}" style="flex:{share:.4f}" title="{title}"></span>')
                text = f"<b>{escape(texts[place])}</b><em>{share:.1%}</em>"
                keys.append(f'<li><i class="{color}"></i><span>{title}</span>{text}</li>')
        head, bar = f'<div class="name">{escape(name)}</div>', f'<div class="bar">{"".join(pieces)}</div>'
        bars.append(f'<div>{head}{bar}<ul class="parts">{"".join(keys)}</ul></div>')
    return _figure(block.title, "", f'<div class="bars">{"".join(bars)}</div>', "", "", block.remark, wide=True)


def _bars(block: doc.Bars) -> str:
    """Draw a bar for each value. A limit far above all values makes them hairs, not nothing."""
    highest = max((max(bar.value, bar.limit or 0.0) for bar in block.bars), default=0.0) or 1.0
    rows = []
    for bar in block.bars:
        limit = "" if bar.limit is None else f'<s style="left:{bar.limit / highest:.2%}"></s>'
        fill = f'<span style="width:{max(0.0, bar.value) / highest:.2%}"></span>'
        name = f'<div class="name"><span>{escape(bar.name)}</span><b>{escape(bar.text)}</b></div>'
        rows.append(f'<div>{name}<div class="level">{fill}{limit}</div></div>')
    keys = [("limit k2", block.limit)] if any(bar.limit is not None for bar in block.bars) else []
    return _figure(block.title, "", f'<div class="levels">{"".join(rows)}</div>', "", _legend(keys), block.remark)


NARROWEST, WIDEST = math.log(1.1), math.log(4)
"""An axis of ratios reaches at least so far to either side of 1. Intervals alone make it reach no further than the
second; what is beyond is cut off at its end."""


def _ratios(block: doc.Intervals) -> str:
    """Draw ratios on a logarithmic axis: twice and half are as far from 1."""

    def distance(ratio: float | None) -> float:
        return abs(math.log(ratio)) if ratio else 0.0

    def place(ratio: float) -> float:
        return min(1.0, max(0.0, 0.5 + math.log(ratio) / (2 * reach))) if ratio > 0 else 0.0

    ends = max((distance(end) for row in block.rows for end in (row.low, row.high)), default=0.0)
    reach = 1.1 * max(*(distance(row.value) for row in block.rows), min(WIDEST, ends), NARROWEST)
    rows = []
    for row in block.rows:
        kind = {True: "good", False: "bad", None: "open"}[row.is_good]
        low, high = (place(row.value if end is None else end) for end in (row.low, row.high))
        drawn = (
            f'<span style="left:{low:.2%};width:{high - low:.2%}"></span><i style="left:{place(row.value):.2%}"></i>'
        )
        name = f'<div class="name"><span>{escape(row.name)}</span><b>{escape(row.text)}</b></div>'
        rows.append(f'<div>{name}<div class="range {kind}"><s></s>{drawn}</div></div>')
    return _figure(
        block.title, "", f'<div class="levels ratios">{"".join(rows)}</div>', "", "", block.remark, wide=True
    )


def _matrix(block: doc.HeatMap) -> str:
    known = [value for row in block.values for value in row if value is not None]
    low, high = (0.0, 1.0) if block.is_share else (min(known, default=0.0), max(known, default=1.0))

    def cell(value: float | None) -> str:
        if value is None:
            return f'<td style="--v:0">{NO_VALUE}</td>'
        depth = min(1.0, max(LEAST_DEPTH, (value - low) / (high - low) if high > low else LEAST_DEPTH))
        text = f"{value:.0%}" if block.is_share else f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
        return f'<td{" class=deep" if depth > DEEP else ""} style="--v:{depth:.2f}">{text}</td>'

    heads = "".join(f"<th>{escape(name)}</th>" for name in block.columns)
    rows = [
        f"<tr><th>{escape(name)}</th>{''.join(map(cell, row))}</tr>"
        for name, row in zip(block.rows, block.values, strict=True)
    ]
    caption = f"{escape(block.y_title)} ↓ &nbsp; {escape(block.x_title)} →"
    head = f"<caption>{caption}</caption><thead><tr><th></th>{heads}</tr></thead>"
    table = f'<div class="box plain"><table class="heat">{head}<tbody>{"".join(rows)}</tbody></table></div>'
    return _figure(block.title, "", table, "", "", block.remark, wide=len(block.columns) > NARROW_COLUMNS)

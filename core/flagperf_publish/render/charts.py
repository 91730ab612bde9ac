"""Charts as SVG, drawn by Vega-Lite (vl-convert). What is drawn are marks and numbers: titles, legends and remarks are
HTML, so that they wrap, and no text of a run reaches the drawing, but for the names of points, which are put there
escaped, as titles. Colors are variables of the page's style, which dark mode changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flagperf.report import document as doc
from flagperf_publish.render.html_cells import escape

WIDTH, HEIGHT = 380, 212
"""In pixels, with axes. A phone shows it nearly so."""

NUM_COLORS = 6
MOST_NUMBERED = 12
"""So many named points have a number beside them, and their names below the drawing."""
Layer = dict[str, Any]

_PLACES = re.compile(r'(?: d="|translate\()[^")]*')
_DIGITS = re.compile(r"(\d+\.\d)\d+")
_NAMED = re.compile(r'<path aria-label="(\d+)"([^>]*)/>')
_UNUSED = re.compile(r' (?:aria-[a-z]+|role|class|pointer-events|font-family)="[^"]*"')
_EMPTY = re.compile(r'<path d="(?:M0,0h-?[\d.]+v-?[\d.]+h-?[\d.]+Z)?"(?: display="none")?/>')


def color(index: int) -> str:
    return f"var(--c{index % NUM_COLORS + 1})"


def chart_svg(chart: doc.Chart) -> str:
    return _svg(list(_layers(chart)), _x_axis(chart), _y_axis(chart), named_points(chart))


def named_points(chart: doc.Chart) -> list[str]:
    """Return the names of the points that are drawn, in order."""
    return [
        name
        for series in chart.series
        for (x, y), name in zip(series.points, series.names, strict=False)
        if _is_shown(chart, x, y)
    ]


def histogram_svg(block: doc.Histogram) -> str:
    bars = [{"x": low, "x2": high, "y": 0, "y2": count} for low, high, count in block.bins]
    lines = [
        _layer([{"x": value}], {"type": "rule", "color": color(index + 1), "strokeWidth": 2, "strokeDash": [4, 3]}, "x")
        for index, (_, value) in enumerate(block.lines)
    ]
    bar = _layer(
        bars, {"type": "rect", "color": color(0), "opacity": 0.75, "stroke": "var(--surface)"}, *["x", "x2", "y", "y2"]
    )
    x_axis = {"type": "quantitative", "scale": {"zero": False, "nice": False}, "axis": {"grid": False, "tickCount": 5}}
    y_axis = {"type": "quantitative", "scale": {"zero": True}, "axis": {"tickCount": 4, "tickMinStep": 1}}
    return _svg([bar, *lines], x_axis, y_axis)


# --- axes -----------------------------------------------------------------------------------------------------------

_BYTES = (
    " : ".join(
        f"datum.value >= {1 << bits} ? format(datum.value / {1 << bits}, '.3~r') + ' {unit}'"
        for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB"))
    )
    + " : datum.value + ' B'"
)
_SHORT = "format(datum.value, '~s')"
_PLAIN = "format(datum.value, '~g')"
MOST_DECADES = 6
"""More powers of ten are not written on an axis."""
MANY = 1e5
"""Numbers from here on are written with a prefix: 120k."""


def _label(values: Iterable[float], *, is_log: bool) -> str:
    """Return how numbers are written: all of an axis alike."""
    highest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return _SHORT if is_log or highest >= MANY or 0 < highest < 1e-2 else "datum.label"


def _decades(values: Iterable[float]) -> Layer:
    """Put powers of ten on a logarithmic axis and, if it is short, 2 and 5 of each.

    One that is shorter still is linear to the eye, and has its usual numbers.
    """
    found = [value for value in values if math.isfinite(value) and value > 0]
    lowest, highest = (min(found), max(found)) if found else (1.0, 1.0)
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    if last - first >= 2:
        step = -(-(last - first) // MOST_DECADES)
        return {"values": [10.0**power for power in range(first, last + 1, step)], "labelExpr": _PLAIN}
    if highest < 2 * lowest:
        return {"labelExpr": _PLAIN}
    return {"values": [part * 10.0**first for part in (1, 2, 5, 10)], "labelExpr": _PLAIN}


def _x_axis(chart: doc.Chart) -> Layer:
    found = [x for series in chart.series for x, _ in series.points]
    label = _BYTES if chart.x_unit == "bytes" else _label(found, is_log=chart.log_x)
    axis: Layer = {"grid": False, "tickCount": 5, "labelExpr": label}
    if chart.log_x and chart.x_unit != "bytes":
        axis |= _decades(found)
    if chart.x_unit == "integer":
        axis |= {"tickMinStep": 1, "format": ",d"}
    return {"type": "quantitative", "axis": axis, "scale": _scale(chart.log_x, chart.x_unit == "bytes")}


def _y_axis(chart: doc.Chart) -> Layer:
    scale = {**_scale(chart.log_y), "nice": True}
    if not chart.log_y:
        scale["zero"] = chart.from_zero
    found = [y for series in chart.series for _, y in series.points]
    found += [y for series in chart.series for _, low, high in series.ranges for y in (low, high)]
    if chart.covers:
        scale["domain"] = [min(*found, *chart.covers), max(*found, *chart.covers)]
    axis: Layer = {"tickCount": 5, "labelExpr": _label(found, is_log=chart.log_y)}
    if chart.log_y:
        axis |= _decades(found)
    return {"type": "quantitative", "axis": axis, "scale": scale}


def _scale(is_log: bool, is_binary: bool = False) -> Layer:
    if not is_log:
        return {"zero": False, "nice": False}
    return {"type": "log", "base": 2 if is_binary else 10, "nice": False}


# --- marks ----------------------------------------------------------------------------------------------------------


def _layers(chart: doc.Chart) -> Iterator[Layer]:
    for axis, fill in (("x", "var(--band)"), ("y", "var(--interval)")):
        bands = [{axis: band.low, f"{axis}2": band.high} for band in chart.bands if band.axis == axis]
        if bands:
            yield _layer(bands, {"type": "rect", "color": fill}, axis, f"{axis}2")
    for index, series in enumerate(chart.series):
        ranges = [{"x": x, "y": low, "y2": high} for x, low, high in series.ranges if _is_shown(chart, x, low, high)]
        if ranges and chart.marks:
            mark = {"type": "rule", "color": color(index), "opacity": 0.45, "strokeWidth": 2}
            yield _layer(ranges, mark, "x", "y", "y2")
        elif ranges:
            mark = {"type": "area", "color": color(index), "opacity": 0.2, "line": False}
            yield _layer(ranges, mark, "x", "y", "y2")
    named: list[dict[str, float]] = []
    for index, series in enumerate(chart.series):
        points: list[dict[str, float]] = [{"x": x, "y": y} for x, y in series.points if _is_shown(chart, x, y)]
        mark = _mark(chart, series, index, len(points))
        if points and series.names:
            numbered = [{**point, "number": number} for number, point in enumerate(points, start=len(named))]
            named += points
            yield _layer(numbered, {**mark, "aria": True}, "x", "y", "description")
        elif points:
            yield _layer(points, mark, "x", "y")
    if 0 < len(named) <= MOST_NUMBERED:  # they are named below the drawing
        numbered = [{**point, "number": number} for number, point in enumerate(named, start=1)]
        mark = {"type": "text", "dx": 8, "dy": -6, "fontSize": 10.5, "color": "var(--muted)"}
        yield _layer(numbered, mark, "x", "y", "text")


def _mark(chart: doc.Chart, series: doc.ChartSeries, index: int, num_points: int) -> Layer:
    if series.is_limit:
        return {"type": "line", "color": color(index), "strokeDash": [5, 4], "strokeWidth": 1.6}
    if chart.marks or num_points == 1:
        return {"type": "point", "filled": True, "size": 34, "color": color(index), "opacity": 0.85}
    has_points = num_points <= 12
    point = {"filled": True, "size": 26, "color": color(index)} if has_points else False
    return {"type": "line", "color": color(index), "strokeWidth": 2, "strokeJoin": "round", "point": point}


def _is_shown(chart: doc.Chart, x: float, *ys: float) -> bool:
    """Return whether a point can be drawn: a logarithm needs more than 0."""
    if not all(map(math.isfinite, (x, *ys))):
        return False
    return not (chart.log_x and x <= 0) and not (chart.log_y and min(ys) <= 0)


def _layer(rows: Sequence[dict[str, float]], mark: Layer, *channels: str) -> Layer:
    return {"data": {"values": list(rows)}, "mark": mark, "channels": channels}


# --- the drawing ----------------------------------------------------------------------------------------------------

_AXIS = {
    "domain": False,
    "gridColor": "var(--line)",
    "labelColor": "var(--muted)",
    "labelFontSize": 11.5,
    "labelPadding": 6,
    "ticks": False,
    "title": None,
}
_CONFIG = {"view": {"stroke": None}, "axis": _AXIS, "aria": False, "background": None, "font": "sans-serif"}


def _svg(layers: Sequence[Layer], x_axis: Layer, y_axis: Layer, names: Sequence[str] = ()) -> str:
    import vl_convert  # lazy: half a second, and optional

    channels = {
        "x": {"field": "x", **x_axis},
        "y": {"field": "y", **y_axis},
        "x2": {"field": "x2"},
        "y2": {"field": "y2"},
        **{channel: {"field": "number", "type": "nominal"} for channel in ("text", "description")},
    }
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": WIDTH,
        "height": HEIGHT,
        "padding": 2,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": _CONFIG,
        "layer": [
            {
                "data": layer["data"],
                "mark": layer["mark"],
                "encoding": {channel: channels[channel] for channel in layer["channels"]},
            }
            for layer in layers
        ],
    }
    drawn = vl_convert.vegalite_to_svg(spec)
    drawn = _NAMED.sub(lambda found: f"<path{found[2]}><title>{escape(names[int(found[1])])}</title></path>", drawn)
    # what nobody sees goes: more than a tenth of a pixel, names of Vega's own groups
    drawn = _PLACES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), _UNUSED.sub("", drawn))
    drawn = _EMPTY.sub("", drawn).replace(' xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1"', "")
    return drawn.replace("<svg ", '<svg aria-hidden="true" ', 1)

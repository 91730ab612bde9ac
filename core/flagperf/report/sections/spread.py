"""Spread: how figures differ between devices and nodes of a run, and which devices stand out (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, choose, label, say, words
from flagperf.metrics.entry import NAMED_AT_MOST, named
from flagperf.metrics.registry import ENTRIES
from flagperf.report.document import Block, Bullets, Head, Table, Text
from flagperf.report.page_runs import PageRuns
from flagperf.stats import median, standing_out


class SpreadFigure(msgspec.Struct, frozen=True, kw_only=True):
    metric: str
    per: str = "per_device"
    """The input of the metric that has the figure of every device, or a list with that of every rank."""
    label: str = ""
    """Its name [default: the metric's title]."""
    unit: str = ""
    """[default: as the metric is shown]"""
    form: Callable[[Any], str] | None = None
    """[default: as the metric is shown]"""
    worse: int = 0
    """1: higher is worse, -1: lower is. 0: no device stands out."""
    least: float = 0.03
    """A device stands out only if it is worse than the median by more than this share of the median."""
    share_of: str = ""
    """Another input, of whose median it is the share."""

    def title(self, lang: Lang) -> str:
        return label(self.label, lang) if self.label else choose(ENTRIES[self.metric].title, lang)

    def number(self, value: float) -> str:
        return (self.form or ENTRIES[self.metric].format)(value)

    @property
    def shown_unit(self) -> str:
        entry = ENTRIES[self.metric]
        return self.unit or entry.shown_unit or str(entry.unit)


def _of_rank(per: str, name: str, **more: Any) -> SpreadFigure:
    return SpreadFigure(metric="rank_spread", per=per, label=name, unit="ms", form=units.milliseconds, worse=1, **more)


FIGURES = (
    _of_rank("step_seconds", "spread_step_time"),
    _of_rank("wait_seconds", "spread_data_wait", share_of="step_seconds"),
    SpreadFigure(metric="mem_used"),  # the stages of a pipeline differ
    SpreadFigure(metric="power_mean", worse=-1),
    SpreadFigure(metric="clock_mean", worse=-1),
    SpreadFigure(metric="temperature_max", worse=1, least=0.1),
)


class Place(msgspec.Struct, frozen=True):
    """Whose figure it is: a device, or a board whose chips share the figure (it has no rank)."""

    node: int
    id: str
    rank: int | None


Figures = Mapping[Place, float]

NodeNames = Mapping[int, str]


def spread(page: PageRuns) -> Iterator[Block]:
    for number, recorded in enumerate(page.runs, start=1):
        yield from spread_blocks(recorded.run, page.lang, page.mark(number))


def whole_spread(page: PageRuns) -> Iterator[Block]:
    """Show all runs with several devices: a page with charts has the room."""
    for number, recorded in enumerate(page.runs, start=1):
        yield from spread_blocks(recorded.run, page.lang, page.mark(number), always=True)


def spread_blocks(run: Run, lang: Lang, mark: str = "", *, always: bool = False) -> Iterator[Block]:
    """Show runs of several nodes. Show several devices of one node only if one of them stands out, or `always`."""
    if not run.has_results:
        return
    found = {figure: figures for figure in FIGURES if len(figures := _figures(run, figure)) > 1}
    nodes = {node.index: words(named("node", [node.index]), lang) for node in run.job.nodes}
    if len({node.host for node in run.job.nodes}) == len(run.job.nodes):  # else hosts do not tell nodes apart
        for each in run.job.nodes:
            nodes[each.index] = say("node_on_host", lang, node=nodes[each.index], host=each.host)
    lines = [line for figure, figures in found.items() for line in _outstanding(run, figure, figures, nodes, lang)]
    has_nodes = len(nodes) > 1
    if not found or not (has_nodes or lines or always):
        return
    title = label("spread_nodes" if has_nodes else "spread_devices", lang)
    heads = tuple(Head(label(f"head_{name}", lang)) for name in ("figure", "over", "lowest", "median", "highest"))
    rows = tuple(row for figure, figures in found.items() for row in _rows(figure, figures, nodes, lang))
    is_judged = any(figure.worse and len(figures) > 2 for figure, figures in found.items())
    remark = say("none_stands_out", lang) if is_judged and not lines else ""
    yield Table(heads, rows, say("line", lang, label=title, value=mark) if mark else title, remark)
    if lines:
        yield Bullets(tuple(map(Text, lines)), label("stand_out", lang))


# --- figures --------------------------------------------------------------------------------------------------------


def rank_figures(run: Run, figure: SpreadFigure) -> dict[int, float]:
    """Return the figure of each rank's device. What the chips of a board share belongs to no rank."""
    found = _figures(run, figure).items()
    return dict(sorted((place.rank, value) for place, value in found if place.rank is not None))


def _figures(run: Run, figure: SpreadFigure) -> Figures:
    """Return the figure of every place, from the inputs that were recorded with the metric."""
    cards = [(node.index, device.id) for node in run.job.nodes for device in node.devices]
    places = {card: Place(*card, rank) for rank, card in enumerate(cards)}
    recorded = _recorded(run, figure.metric, figure.per)
    if isinstance(recorded, list):
        return dict(zip(places.values(), recorded, strict=False))
    nodes = {str(node.index): node.index for node in run.job.nodes}
    found: dict[Place, float] = {}
    for key, value in recorded.items():
        node, _, owner = key.partition("/")
        if node in nodes:  # what is of no node of the job, `runs verify` reports
            found[places.get((nodes[node], owner), Place(nodes[node], owner, None))] = value
    return found


def _recorded(run: Run, metric: str, name: str) -> Any:
    """Return the input, which is empty if the metric has no value or no such input."""
    found = run.metric(metric)
    return found.inputs.get(name, {}) if found is not None and found.value is not None else {}


def _by_node(figures: Figures) -> dict[int, list[float]]:
    nodes: dict[int, list[float]] = {}
    for place, value in figures.items():
        nodes.setdefault(place.node, []).append(value)
    return nodes


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# --- the table ------------------------------------------------------------------------------------------------------


def _rows(figure: SpreadFigure, figures: Figures, names: NodeNames, lang: Lang) -> Iterator[tuple[Text, ...]]:
    """Give a row over devices, and one over nodes, each with the mean of its devices."""
    parts = "over_boards" if any(place.rank is None for place in figures) else "over_devices"
    title = say("with_unit", lang, text=figure.title(lang), unit=figure.shown_unit)
    devices = {}
    for place, value in figures.items():
        is_board = place.rank is None
        name = _long(place, names[place.node], lang) if is_board else words(named("rank", [place.rank]), lang)
        devices[name] = value
    yield _row(figure, title, say(parts, lang, count=len(figures)), devices, lang)
    nodes = {names[node]: _mean(values) for node, values in _by_node(figures).items()}
    if len(nodes) > 1:
        yield _row(figure, title, say("over_nodes", lang, count=len(nodes)), nodes, lang)


def _row(figure: SpreadFigure, title: str, over: str, values: Mapping[str, float], lang: Lang) -> tuple[Text, ...]:
    """Name whose figure the lowest and the highest are, unless they are shown as equal."""
    ordered = sorted(values.items(), key=lambda item: item[1])
    ends = [(figure.number(value), who) for who, value in (ordered[0], ordered[-1])]
    (low, _), (high, _) = ends
    lowest, highest = (low if low == high else say("value_of", lang, value=value, who=who) for value, who in ends)
    return Text(title), Text(over), Text(lowest), Text(figure.number(median(values.values()))), Text(highest)


# --- what stands out ------------------------------------------------------------------------------------------------


def _outstanding(run: Run, figure: SpreadFigure, figures: Figures, nodes: NodeNames, lang: Lang) -> Iterator[str]:
    """Say which devices stand out, the worst first. Where all of a node do, name the node, with their mean."""
    scale = _recorded(run, figure.metric, figure.share_of) if figure.share_of else figures.values()
    values = [figure.worse * value for value in figures.values()]
    indices = standing_out(values, figure.least * median(scale)) if figure.worse else []
    places = list(figures)
    bad = {places[index]: figures[places[index]] for index in indices}
    of_node, owners = _by_node(figures), []
    for node, shared in _by_node(bad).items():
        if len(shared) == len(of_node[node]) > 1:
            owners.append((say("all_of_node", lang, node=nodes[node]), _mean(shared)))
        else:
            owners += [(_long(each, nodes[node], lang), value) for each, value in bad.items() if each.node == node]
    owners.sort(key=lambda owner: figure.worse * owner[1], reverse=True)
    middle = figure.number(median(figures.values()))
    for who, value in owners[:NAMED_AT_MOST]:
        numbers = {"value": figure.number(value), "median": middle, "unit": figure.shown_unit}
        yield say("stands_out", lang, figure=figure.title(lang), who=who, **numbers)
    if len(owners) > NAMED_AT_MOST:
        yield say("more_stand_out", lang, figure=figure.title(lang), count=len(owners) - NAMED_AT_MOST)


def _long(place: Place, node: str, lang: Lang) -> str:
    if place.rank is None:
        return say("board_of_node", lang, board=place.id, node=node)
    return say("device_of_node", lang, device=place.id, rank=place.rank, node=node)

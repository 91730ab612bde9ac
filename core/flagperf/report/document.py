"""Document: a report independent of its output format. Sections build it, renderers write it.

This module depends neither on runs and metrics nor on Markdown and terminals. Texts are in the language of the document
and not escaped. Reasons and marks are codes; a renderer looks up their wording.
"""

from __future__ import annotations

from typing import Literal, Union

import msgspec

from flagperf.messages import Lang, Message

NOTHING = "/"
"""What pages print for an empty cell."""


# --- cells ----------------------------------------------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    text: str
    short: str = ""
    """A shorter form, used where space is tight."""
    strong: bool = False


class Link(msgspec.Struct, frozen=True):
    text: str
    url: str
    """Renderers make a link of http and https addresses only."""


class Links(msgspec.Struct, frozen=True):
    links: tuple[Link, ...]


class Value(msgspec.Struct, frozen=True):
    text: str
    unit: str = ""
    marks: tuple[str, ...] = ()
    """Codes of caveats that apply to the value."""


class Empty(msgspec.Struct, frozen=True):
    """A missing value, with the code of its reason."""

    reason: str
    detail: Message | str = ""
    """What was observed."""


class Status(msgspec.Struct, frozen=True):
    """The outcome of a run or a check."""

    text: str
    good: bool


TableCell = Text | Link | Links | Value | Empty | Status


# --- blocks ---------------------------------------------------------------------------------------------------------


class Heading(msgspec.Struct, frozen=True):
    text: str
    level: int = 3


class Paragraph(msgspec.Struct, frozen=True):
    text: str


class LabelledCell(msgspec.Struct, frozen=True):
    label: str
    cell: TableCell
    note: str = ""


class Facts(msgspec.Struct, frozen=True):
    facts: tuple[LabelledCell, ...]
    title: str = ""


class Bullets(msgspec.Struct, frozen=True):
    items: tuple[TableCell, ...]
    title: str = ""
    numbered: bool = False


class Head(msgspec.Struct, frozen=True):
    """The head of a column."""

    title: str
    headline: bool = False
    """Marks the figure that readers look for first."""


class Table(msgspec.Struct, frozen=True):
    heads: tuple[Head, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    title: str = ""
    remark: str = ""
    """Printed below the table."""
    collapsed: bool = False
    """Renderers may hide the rows until the reader expands the title."""


class Code(msgspec.Struct, frozen=True):
    """Preformatted lines."""

    text: str


class NoteGroup(msgspec.Struct, frozen=True):
    subject: str
    notes: tuple[str, ...]


class Notes(msgspec.Struct, frozen=True):
    groups: tuple[NoteGroup, ...]
    title: str


class ChartSeries(msgspec.Struct, frozen=True):
    name: str
    points: tuple[tuple[float, float], ...]
    ranges: tuple[tuple[float, float, float], ...] = ()
    """x, lowest and highest: the extremes where a point stands for many values."""
    is_limit: bool = False
    """A bound or a reference, not something measured here: dashed, also among points."""
    names: tuple[str, ...] = ()
    """What each point is, where they are more than a course."""


class Band(msgspec.Struct, frozen=True):
    """A part of an axis that is shaded: an interval of the values, or a span of time."""

    name: str
    low: float
    high: float
    axis: Literal["x", "y"] = "x"


Unit = Literal["number", "bytes", "integer"]
"""How numbers on an axis are written: `bytes` in binary multiples, `integer` without parts of one."""


class Chart(msgspec.Struct, frozen=True):
    """Text renderers skip charts."""

    title: str
    x_title: str
    y_title: str
    series: tuple[ChartSeries, ...]
    log_x: bool = False
    log_y: bool = False
    marks: bool = False
    """Points, not lines."""
    bands: tuple[Band, ...] = ()
    x_unit: Unit = "number"
    from_zero: bool = False
    """The y axis begins at 0."""
    covers: tuple[float, float] | None = None
    """Values that the y axis reaches at least, so that small differences look small."""
    remark: str = ""
    """What a reader has to know to read it."""


class Histogram(msgspec.Struct, frozen=True):
    """Text renderers skip it."""

    title: str
    x_title: str
    y_title: str
    bins: tuple[tuple[float, float, int], ...]
    """From, to, how many."""
    lines: tuple[tuple[str, float], ...] = ()
    """Named values on the x axis, such as percentiles."""
    remark: str = ""


class Shares(msgspec.Struct, frozen=True):
    """Wholes and what they consist of, as bars. Text renderers skip it."""

    title: str
    parts: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]
    """Name of the whole, and the amount of each part."""
    texts: tuple[tuple[str, ...], ...]
    """The amounts as they are shown, by row."""
    remark: str = ""


class Bar(msgspec.Struct, frozen=True):
    name: str
    value: float
    text: str
    """The value as it is shown."""
    limit: float | None = None
    """What it could be at most."""


class Bars(msgspec.Struct, frozen=True):
    """Values of one unit beside each other. Text renderers skip it."""

    title: str
    bars: tuple[Bar, ...]
    limit: str = ""
    """What the limits are."""
    remark: str = ""


class RatioInterval(msgspec.Struct, frozen=True):
    """A ratio, with how far it may be off where that is known."""

    name: str
    value: float
    text: str
    """As it is shown."""
    low: float | None = None
    high: float | None = None
    is_good: bool | None = None
    """What it says about what is compared, if it says something."""


class Intervals(msgspec.Struct, frozen=True):
    """Ratios around 1 below each other. Text renderers skip it."""

    title: str
    rows: tuple[RatioInterval, ...]
    remark: str = ""


class HeatMap(msgspec.Struct, frozen=True):
    """Text renderers skip it."""

    title: str
    x_title: str
    y_title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    """By row, then by column."""
    remark: str = ""
    is_share: bool = False
    """The values are shares of 1."""


class KeyFigure(msgspec.Struct, frozen=True):
    """A figure that is read first."""

    label: str
    cell: Value | Empty
    note: str = ""
    """Below it, such as its interval."""
    headline: bool = False
    title: str = ""
    """What the label means, in words."""


class Headline(msgspec.Struct, frozen=True):
    """The first block of a page: its subject, how the run ended and the main figures."""

    title: str
    """Empty if a heading above it says it."""
    facts: tuple[LabelledCell, ...]
    status: Status | None = None
    reason: str = ""
    """Why it ended so."""
    cautions: tuple[str, ...] = ()
    """What a reader must know before any figure."""
    figures: tuple[KeyFigure, ...] = ()

    @property
    def as_facts(self) -> Facts:
        """Return all of it as lines, for renderers of text."""
        status = (LabelledCell("", self.status, self.reason),) if self.status else ()
        return Facts((*status, *self.facts, *(LabelledCell(each.label, each.cell, each.note) for each in self.figures)))


class Fold(msgspec.Struct, frozen=True):
    """Blocks that a renderer may hide until the reader asks for them."""

    title: str
    blocks: tuple[Block, ...]


Block = Union[  # noqa: UP007  (Fold refers to it, and it is evaluated at run time)
    Heading,
    Paragraph,
    Facts,
    Bullets,
    Table,
    Code,
    Notes,
    Headline,
    Fold,
    Chart,
    Histogram,
    Shares,
    Bars,
    Intervals,
    HeatMap,
]


class Document(msgspec.Struct, frozen=True):
    lang: Lang
    blocks: tuple[Block, ...]
    title: str = ""
    """For renderers that name what they write [default: the first heading]."""
    up: Link | None = None
    """The page that lists this one, beside others: an address of ours, relative to this page. Only HTML has it."""

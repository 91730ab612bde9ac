"""Document: a report independent of its output format. Sections build it, renderers write it.

This module depends neither on runs and metrics nor on Markdown and terminals. Texts are in the language of the document
and not escaped. Reasons and marks are codes; a renderer looks up their wording.
"""

from __future__ import annotations

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


TableCell = Text | Link | Value | Empty | Status


# --- blocks ---------------------------------------------------------------------------------------------------------


class Heading(msgspec.Struct, frozen=True):
    text: str
    level: int = 3


class Paragraph(msgspec.Struct, frozen=True):
    text: str


class Fact(msgspec.Struct, frozen=True):
    label: str
    cell: TableCell
    note: str = ""


class Facts(msgspec.Struct, frozen=True):
    facts: tuple[Fact, ...]
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


class Series(msgspec.Struct, frozen=True):
    name: str
    points: tuple[tuple[float, float], ...]


class Chart(msgspec.Struct, frozen=True):
    """Text renderers skip charts."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]


Block = Heading | Paragraph | Facts | Bullets | Table | Code | Notes | Chart


class Document(msgspec.Struct, frozen=True):
    lang: Lang
    blocks: tuple[Block, ...]

"""Document: a report before it is written anywhere. Sections make it, renderers write it.

Nothing here knows of runs and metrics, or of Markdown and terminals. Texts are in the language of the document and are
not escaped. Reasons and marks are codes; a renderer looks up their words.
"""

from __future__ import annotations

import msgspec

from flagperf.messages import Lang, Message

NOTHING = "/"
"""How pages write that nothing is there."""


# --- cells ----------------------------------------------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True):
    text: str
    short: str = ""
    """The same in fewer letters, for where there is no room."""
    strong: bool = False


class Value(msgspec.Struct, frozen=True):
    text: str
    unit: str = ""
    marks: tuple[str, ...] = ()
    """Codes of what a reader has to know about the value."""


class Empty(msgspec.Struct, frozen=True):
    """No value, and why."""

    reason: str
    detail: Message | str = ""
    """What was seen."""


class Status(msgspec.Struct, frozen=True):
    """How something ended."""

    text: str
    good: bool


class Link(msgspec.Struct, frozen=True):
    text: str
    url: str


TableCell = Text | Value | Empty | Status | Link


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
    """Of a column."""

    title: str
    headline: bool = False
    """Marked: the figure that a reader looks for first."""


class Table(msgspec.Struct, frozen=True):
    heads: tuple[Head, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    title: str = ""
    remark: str = ""
    """Below it."""
    collapsed: bool = False
    """Long and of second rank: may be folded away behind its title."""


class Code(msgspec.Struct, frozen=True):
    """Lines as they are."""

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
    """Renderers that write text leave it out."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]


Block = Heading | Paragraph | Facts | Bullets | Table | Code | Notes | Chart


class Document(msgspec.Struct, frozen=True):
    lang: Lang
    blocks: tuple[Block, ...]

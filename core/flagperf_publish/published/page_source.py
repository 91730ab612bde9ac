"""Markdown with line numbers, quantities, vocabulary."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.files import read_regular
from flagperf.spec.toml_files import read_toml
from flagperf.units import GIB

# A published page as text: headings, facts and tables with their line numbers. It knows Markdown and no benchmark.


MAX_PAGE_BYTES = 4 << 20

MAX_CELLS = 20_000
"""Of all tables of a page. The largest published page has 200."""

MAX_LINE = 10_000
"""Characters of a line that are looked at. The longest published one has 500."""

_HEADING = re.compile(r"\s*(?:[-*+]\s+)?(#{1,6})\s+(.*)$")

_DELIMITER = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$")

_FACT = re.compile(r"(\s*)[-*+]\s+(?=\S)([^|：:`]{1,40}?)\s*[：:]\s*(.*)$")

_FENCE = re.compile(r"\s*(```|~~~)")

_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+.!|~-])")

_BAR = re.compile(r"(?<!\\)\|")


class Heading(msgspec.Struct, frozen=True):
    level: int
    text: str
    line: int


class PageFact(msgspec.Struct, frozen=True):
    """A bullet `key: value`, with either colon."""

    key: str
    value: str
    line: int
    has_children: bool
    """Bullets below it say what it does not."""


class TableRow(msgspec.Struct, frozen=True):
    cells: tuple[str, ...]
    line: int
    is_glued: bool = False
    """A sentence directly below the table, which Markdown takes for a row."""


class SourceTable(msgspec.Struct, frozen=True):
    heads: tuple[str, ...]
    line: int
    rows: tuple[TableRow, ...]


class SourcePage(msgspec.Struct, frozen=True):
    path: str
    sha256: str
    lines: tuple[str, ...]
    headings: tuple[Heading, ...]
    facts: tuple[PageFact, ...]
    tables: tuple[SourceTable, ...]


def read_page(path: Path) -> SourcePage:
    """Raises BadInput for what is not a page: no file, no text, too large."""
    try:
        content = read_regular(path, MAX_PAGE_BYTES, follow_links=True)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if b"\0" in content:
        raise BadInput(f"{path} is not a page: it has binary content; give a Markdown file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not a page in UTF-8: {error.reason} at byte {error.start}") from None
    return parse_page(text, str(path), hashlib.sha256(content).hexdigest())


def parse_page(text: str, path: str = "", sha256: str = "") -> SourcePage:
    lines = tuple(line.rstrip("\r")[:MAX_LINE] for line in text.split("\n"))
    shown = _without_code(lines)
    return SourcePage(path, sha256, lines, tuple(_headings(shown)), tuple(_facts(shown)), tuple(_tables(shown, path)))


def plain(text: str) -> str:
    """Without bold marks and escapes."""
    return _ESCAPE.sub(r"\1", text.replace("**", "")).strip()


def _without_code(lines: Sequence[str]) -> list[str]:
    """Lines of code and comments are empty: what they hold is no table."""
    found, fence, in_comment = [], "", False
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            found.append("")
            fence = "" if mark and mark[1] == fence else fence
        elif mark:
            found.append("")
            fence = mark[1]
        else:
            is_comment = in_comment or line.lstrip().startswith("<!--")
            in_comment = is_comment and "-->" not in line
            found.append("" if is_comment else line)
    return found


def _headings(lines: Sequence[str]) -> Iterator[Heading]:
    for number, line in enumerate(lines, start=1):
        found = _HEADING.match(line)
        if found:
            yield Heading(len(found[1]), plain(found[2].rstrip(" #")), number)


def _facts(lines: Sequence[str]) -> Iterator[PageFact]:
    for number, line in enumerate(lines, start=1):
        found = _FACT.match(line)
        if found and not _HEADING.match(line):
            following = next((each for each in lines[number:] if each.strip()), "")
            indent = len(following) - len(following.lstrip())
            yield PageFact(plain(found[2]), plain(found[3]), number, indent > len(found[1]) + 1)


def _tables(lines: Sequence[str], path: str) -> Iterator[SourceTable]:
    number, cells = 0, 0
    while number + 1 < len(lines):
        head, below = lines[number], lines[number + 1]
        if "|" not in head or "|" not in below or not _DELIMITER.match(below.strip()):
            number += 1
            continue
        rows = list(_rows(lines, number + 2))
        cells += sum(len(row.cells) for row in rows)
        if cells > MAX_CELLS:
            raise BadInput(f"{path or 'the page'} has tables of more than {MAX_CELLS:,} cells; it is not read")
        yield SourceTable(_cells(head), number + 1, tuple(rows))
        number += 2 + len(rows)


def _rows(lines: Sequence[str], start: int) -> Iterator[TableRow]:
    """Until an empty line or the start of another block."""
    for number in range(start, len(lines)):
        line = lines[number]
        if not line.strip() or _HEADING.match(line) or re.match(r"\s*([-*+]|\d+\.)\s|\s*>|\s*</?[a-zA-Z]", line):
            return
        yield TableRow(_cells(line), number + 1, is_glued="|" not in line)


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip()
    inner = inner[1:] if inner.startswith("|") else inner
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(plain(cell) for cell in _BAR.split(inner))


# The vocabulary of published pages (`words.toml`).


Spellings = dict[str, tuple[str, ...]]


class Shapes(msgspec.Struct, frozen=True):
    machine: str
    card: str
    one: str
    numbers: dict[str, int]


class ImportedItem(msgspec.Struct, frozen=True):
    """A kind of base page whose figure a case has."""

    subject: str
    case: str
    figure: str
    """Where several cards were busy; `single` where one was."""
    single: str
    busy: str
    """What is said of that in place of overrides, as is `alone`."""
    alone: str


class Words(msgspec.Struct, frozen=True):
    default_value: str
    """A regular expression for the number in the list of batch sizes."""
    own_formula: str
    verdicts: tuple[str, ...]
    columns: Spellings
    general: Spellings
    facts: Spellings
    titles: Spellings
    shapes: Shapes
    overrides: Spellings
    defaults: dict[str, str]
    hardware: Spellings
    imports: tuple[ImportedItem, ...]


@functools.cache
def words() -> Words:
    return msgspec.convert(read_toml(Path(__file__).with_name("words.toml")), Words)


def folded(text: str) -> str:
    """For comparisons: without case, spaces and stars, with half-width brackets and colons."""
    text = text.translate(str.maketrans("（）：，", "():,")).lower()
    return re.sub(r"[\s*]", "", text)


def named(text: str, spellings: Mapping[str, Sequence[str]]) -> str:
    """The name that a text is a spelling of, or empty."""
    wanted = folded(text)
    return next((name for name, known in spellings.items() if wanted in map(folded, known)), "")


# Cells as values: numbers with units, shares, memory, configurations. What cannot be read is None, never zero.


NOTHING = ("", "/", "-", "n/a", "无", "none")
"""What pages write in a cell without a value."""

_NOTE = re.compile(r"\[\^[^\]]+\]")

_NUMBER = re.compile(r"([-+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(.*)")

_SHAPE = re.compile(r"[（(]\s*(\d{1,6})\s*[x×X*]\s*(\d{1,6})\s*[）)]\s*$")

_ENGLISH = re.compile(r"(?P<device>.*?),\s*(?P<nodes>\d+) nodes?,\s*(?P<cards>\d+) devices?\s*$")

_LAYOUT = re.compile(r"TP(\d{1,6})PP(\d{1,6})(?:DP(\d{1,6}))?", re.IGNORECASE)

UNITS: dict[str, tuple[str, float]] = {
    "tflops": ("FLOP/s", 1e12),
    "tflop/s": ("FLOP/s", 1e12),
    "tops": ("FLOP/s", 1e12),
    "gflops": ("FLOP/s", 1e9),
    "pflops": ("FLOP/s", 1e15),
    "gb/s": ("B/s", 1e9),
    "tb/s": ("B/s", 1e12),
    "gib/s": ("B/s", float(GIB)),
    "gib": ("B", float(GIB)),
    "gb": ("B", 1e9),
    "tb": ("B", 1e12),
    "mib": ("B", float(1 << 20)),
    "w": ("W", 1.0),
    "kw": ("W", 1e3),
    "us": ("s", 1e-6),
    "ms": ("s", 1e-3),
    "s": ("s", 1.0),
    "op/s": ("1/s", 1.0),
    "%": ("share", 0.01),
    "": ("", 1.0),
}
"""Unit on a page, in lower case -> what it measures, and how many of that one is."""


class Quantity(msgspec.Struct, frozen=True):
    value: float
    """As printed."""
    unit: str
    """As printed; empty if there is none."""
    decimals: int
    """Digits behind the point."""

    @property
    def kind(self) -> str:
        return UNITS[self.unit.lower()][0]

    @property
    def amount(self) -> float:
        """In FLOP/s, B/s, B, W, s or as a fraction."""
        return self.value * UNITS[self.unit.lower()][1]

    def is_printed_of(self, value: float) -> bool:
        """Whether `value`, in this unit, rounds to what is printed, or is cut to it."""
        last = 10.0**-self.decimals
        slack = last * 1e-6
        return self.value - last / 2 - slack <= value < self.value + last + slack


class Configuration(msgspec.Struct, frozen=True):
    """`A100单机8卡（1x8）`, `A100, 1 node, 8 devices (1x8)`."""

    device: str
    nodes: int
    devices_per_node: int
    said_nodes: int | None
    """By the words before the brackets, as is the next."""
    said_cards: int | None

    @property
    def cards(self) -> int:
        return self.nodes * self.devices_per_node


def without_note(text: str) -> tuple[str, bool]:
    """A cell without its footnote, and whether it had one."""
    bare = _NOTE.sub("", text).strip()
    return bare, bare != text.strip()


def is_nothing(text: str) -> bool:
    return text.strip().lower() in NOTHING


def quantity(text: str) -> Quantity | None:
    """One number with a known unit or none, and nothing else."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None or len(found[1]) > 40 or found[2].strip().lower() not in UNITS:
        return None
    number, mantissa = found[1].replace(",", ""), found[1].lower().partition("e")[0]
    return Quantity(float(number), found[2].strip(), len(mantissa.partition(".")[2]))


def memory(text: str) -> tuple[Quantity, Quantity] | None:
    """`13.9 /40.0`: used and total, in GiB."""
    first, found, second = text.partition("/")
    used, total = quantity(first), quantity(second)
    if not found or used is None or total is None:
        return None
    return None if {used.unit.lower(), total.unit.lower()} - {"", "gib"} else (used, total)


def configuration(text: str) -> Configuration | None:
    shape = _SHAPE.search(text)
    if shape is None:
        return None
    before = text[: shape.start()].strip()
    nodes, per_node = int(shape[1]), int(shape[2])
    english = _ENGLISH.fullmatch(before)
    if english:
        return Configuration(english["device"], nodes, per_node, int(english["nodes"]), int(english["cards"]))
    device, said_nodes, said_cards = _chinese(before)
    return Configuration(device, nodes, per_node, said_nodes, said_cards) if nodes and per_node else None


def _chinese(text: str) -> tuple[str, int | None, int | None]:
    """Device, machines and cards of `A100两机16卡`."""
    shapes = words().shapes
    numbers = "".join(shapes.numbers)
    pattern = rf"(.*?)([{numbers}]|\d+){shapes.machine}(?:([{numbers}]|\d+){shapes.card})?"
    found = re.fullmatch(pattern, text)
    if found is None:
        return text, None, None
    return found[1].strip(), _count(found[2]), _count(found[3])


def _count(word: str | None) -> int | None:
    if word is None:
        return None
    return words().shapes.numbers.get(word) or int(word)


def layout(text: str) -> tuple[int, int, int] | None:
    found = _LAYOUT.fullmatch(text.strip())
    return (int(found[1]), int(found[2]), int(found[3] or 1)) if found else None


def settings(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of `bs=16, lr=1e-05`. What is no pair is left out."""
    for part in re.split(r"[,，;；]", re.sub(r"[（(][^（()）]*[）)]", "", text)):
        key, found, value = part.partition("=")
        if found and key.strip() and value.strip():
            yield key.strip(), value.strip()

"""Published pages as text: Markdown with line numbers, the vocabulary of the pages, and the values of their cells.

Reading Markdown knows nothing of benchmarks; `words.toml` has the spellings that pages use.
"""

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

MAX_PAGE_BYTES = 4 << 20
MAX_CELLS = 20_000
"""Of all tables of a page. The largest published page has 200."""
MAX_LINE = 10_000
"""Characters of a line that are looked at. The longest published one has 500."""

_HEADING = re.compile(r"\s*(?:[-*+]\s+)?(#{1,6})\s+(.*)$")
_DELIMITER = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$")
_FACT = re.compile(r"(\s*)[-*+]\s+(?=\S)([^|：:`]{1,40}?)\s*[：:]\s*(.*)$")
_FENCE = re.compile(r"\s*(```|~~~)")
_OTHER_BLOCK = re.compile(r"\s*([-*+]|\d+\.)\s|\s*>|\s*</?[a-zA-Z]")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+.!|~-])")
_BAR = re.compile(r"(?<!\\)\|")


class SourceHeading(msgspec.Struct, frozen=True):
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
    headings: tuple[SourceHeading, ...]
    facts: tuple[PageFact, ...]
    tables: tuple[SourceTable, ...]


def read_page(path: Path) -> SourcePage:
    """Raise BadInput if this is not a readable page: no file, binary, or too large."""
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
    headings, facts = [], []
    for number, line in enumerate(shown, start=1):
        heading, fact = _HEADING.match(line), _FACT.match(line)
        if heading:
            headings.append(SourceHeading(len(heading[1]), plain(heading[2].rstrip(" #")), number))
        elif fact:
            following = next((shown[at] for at in range(number, len(shown)) if shown[at].strip()), "")
            indent = len(following) - len(following.lstrip())
            facts.append(PageFact(plain(fact[2]), plain(fact[3]), number, indent > len(fact[1]) + 1))
    return SourcePage(path, sha256, lines, tuple(headings), tuple(facts), tuple(_tables(shown, path)))


def plain(text: str) -> str:
    """Return a text without bold marks and escapes."""
    return _ESCAPE.sub(r"\1", text.replace("**", "")).strip()


def _without_code(lines: Sequence[str]) -> list[str]:
    """Return the lines with code and comments emptied: these hold no tables."""
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


def _tables(lines: Sequence[str], path: str) -> Iterator[SourceTable]:
    """Yield the tables. The rows of one end at an empty line or at the start of another block."""
    number, cells = 0, 0
    while number + 1 < len(lines):
        head, below = lines[number], lines[number + 1]
        if "|" not in head or "|" not in below or not _DELIMITER.match(below.strip()):
            number += 1
            continue
        rows = []
        for at in range(number + 2, len(lines)):
            line = lines[at]
            if not line.strip() or _HEADING.match(line) or _OTHER_BLOCK.match(line):
                break
            rows.append(TableRow(_cells(line), at + 1, is_glued="|" not in line))
        cells += sum(len(row.cells) for row in rows)
        if cells > MAX_CELLS:
            raise BadInput(f"{path or 'the page'} has tables of more than {MAX_CELLS:,} cells; it is not read")
        yield SourceTable(_cells(head), number + 1, tuple(rows))
        number += 2 + len(rows)


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip()
    inner = inner[1:] if inner.startswith("|") else inner
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return tuple(plain(cell) for cell in _BAR.split(inner))


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
    """The vocabulary of published pages (`words.toml`)."""

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
    """Return a text to compare: without case, spaces and stars, with half-width brackets and colons."""
    text = text.translate(str.maketrans("（）：，", "():,")).lower()
    return re.sub(r"[\s*]", "", text)


def named(text: str, spellings: Mapping[str, Sequence[str]]) -> str:
    """Return the name that has this spelling, or an empty text."""
    wanted = folded(text)
    return next((name for name, known in spellings.items() if wanted in map(folded, known)), "")


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
"""Unit on a page, in lower case -> what it measures, and the factor to its base unit."""


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
        """Return whether `value`, in this unit, is what is printed once it is rounded or cut."""
        last = 10.0**-self.decimals
        slack = last * 1e-6
        return self.value - last / 2 - slack <= value < self.value + last + slack


class Configuration(msgspec.Struct, frozen=True):
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
    """Return a cell without its footnote, and whether it had one."""
    bare = _NOTE.sub("", text).strip()
    return bare, bare != text.strip()


def is_nothing(text: str) -> bool:
    return text.strip().lower() in NOTHING


def quantity(text: str) -> Quantity | None:
    """Read one number with or without a known unit. Return None for any other text: a missing value is not zero."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None or len(found[1]) > 40 or found[2].strip().lower() not in UNITS:
        return None
    number, mantissa = found[1].replace(",", ""), found[1].lower().partition("e")[0]
    return Quantity(float(number), found[2].strip(), len(mantissa.partition(".")[2]))


def memory(text: str) -> tuple[Quantity, Quantity] | None:
    """Read used and total GiB: `13.9 /40.0`."""
    first, found, second = text.partition("/")
    used, total = quantity(first), quantity(second)
    if not found or used is None or total is None:
        return None
    return None if {used.unit.lower(), total.unit.lower()} - {"", "gib"} else (used, total)


def configuration(text: str) -> Configuration | None:
    """Read words and shape in Chinese or English: `A100两机16卡（2x8）`, `A100, 2 nodes, 16 devices (2x8)`."""
    shape = _SHAPE.search(text)
    if shape is None:
        return None
    before = text[: shape.start()].strip()
    nodes, per_node = int(shape[1]), int(shape[2])
    english = _ENGLISH.fullmatch(before)
    if english:
        return Configuration(english["device"], nodes, per_node, int(english["nodes"]), int(english["cards"]))
    shapes = words().shapes
    numbers = rf"[{''.join(shapes.numbers)}]|\d+"
    chinese = re.fullmatch(rf"(.*?)({numbers}){shapes.machine}(?:({numbers}){shapes.card})?", before)
    device, *said = (chinese[1].strip(), chinese[2], chinese[3]) if chinese else (before, None, None)
    said_nodes, said_cards = (None if word is None else shapes.numbers.get(word) or int(word) for word in said)
    return Configuration(device, nodes, per_node, said_nodes, said_cards) if nodes and per_node else None


def layout(text: str) -> tuple[int, int, int] | None:
    found = _LAYOUT.fullmatch(text.strip())
    return (int(found[1]), int(found[2]), int(found[3] or 1)) if found else None


def settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of `bs=16, lr=1e-05`. Other words are left out."""
    for part in re.split(r"[,，;；]", re.sub(r"[（(][^（()）]*[）)]", "", text)):
        key, found, value = part.partition("=")
        if found and key.strip() and value.strip():
            yield key.strip(), value.strip()

"""Outputs of a tool as nobody has seen them yet: a known one, changed as by releases, locales, terminals and failing
drivers. From each, a parser reads right figures, or gives None or an error with a reason, but never a wrong figure.
OutputSuite tries all of them on every recorded output."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from flagperf.api import FIGURES, Reading
from flagperf.errors import UnknownLayout

Parse = Callable[[str], list[Reading]]

ERROR_LINES = (
    "ERROR: card 1 does not answer",
    "[WARN] ioctl() fail, (713) Device abnormal due to previous error",
    "Failed to open /dev/card1: Permission denied",
    "Traceback (most recent call last):",
    "0000:07:00.0: Unknown Error",
    "12 34 56 78",
)
NOTHINGS = ("N/A", "[N/A]", "[Not Supported]", "-1", "unknown", "ERR!")
SEPARATORS = (",", ".", "'", " ", "\u00a0", "\u202f")
_NUMBER = re.compile(r"(?<![\w.:/-])\d+(?:\.\d+)?(?![\w.:/-])")
"""A number that stands by itself: no part of a name, an address, a version or a date."""
_AMOUNT = re.compile(r"(?<![\w.:-])\d{4,12}(?=\b|MiB|W)")


def check_forms(parse: Parse, known: str) -> None:
    """Check every mutation alone, then one or two together, by fixed seeds."""
    for kind in sorted(MUTATIONS):
        for seed in range(25):
            check_figures(parse, known, mutated(known, kind, Random(seed)))
    for seed in range(50):
        random = Random(seed)
        text = known
        for _ in range(random.randint(1, 2)):
            text = mutated(text, random.choice(sorted(MUTATIONS)), random)
        check_figures(parse, known, text)


def check_cut(parse: Parse, known: str, may_be_shorter: bool = True) -> None:
    """Check the text cut off after every character: it is refused, or gives no other figure and property than the
    whole, and of no fewer cards unless `may_be_shorter`."""
    whole = parse(known)
    for length in range(len(known.rstrip("\n"))):
        readings = check_figures(parse, known, known[:length])
        assert may_be_shorter or not readings or len(readings) == len(whole), f"cut after {length} characters"
        for reading in readings:
            card = _same_card(reading, whole)
            assert card is not None and reading.properties.items() <= card.properties.items(), known[:length]


def changed(text: str, old: str, new: str, count: int = -1) -> str:
    """Return a text with one thing changed, which must be in it."""
    assert old in text, f"{old!r} is not in {text!r}"
    return text.replace(old, new, count)


def check_figures(parse: Parse, known: str, text: str) -> list[Reading]:
    """Return the readings of `text`, a mutation of `known`; none if `parse` refuses it. Fail on a wrong figure and on
    any other exception than UnknownLayout. A figure may be left out: the query that asked for it says so."""
    try:
        readings = parse(text)
    except UnknownLayout as error:
        assert str(error), text
        return []
    whole = parse(known)
    for reading in readings:
        card = _same_card(reading, whole)
        for figure in FIGURES:
            value, right = getattr(reading, figure), getattr(card, figure, None)
            assert value in (None, right), f"{figure} of {reading.device_id} is {value}, not {right}, in {text!r}"
    return readings


def _same_card(reading: Reading, known: list[Reading]) -> Reading | None:
    """Find the card by its key, or, where the mutation changed that, by the tool's number or the address."""
    found = [each for each in known if each.device_id == reading.device_id]
    for name in ("index", "pci_address"):
        told = reading.properties.get(name)
        found += [each for each in known if told and each.properties.get(name) == told]
    return found[0] if found else None


# --- mutations -------------------------------------------------------------------------------------------------------


MUTATIONS = (
    "cut", "without a line", "a line twice", "an error line", "a cell without a value", "a long number",
    "grouped digits", "decimal commas", "coloured", "windows lines", "tabs", "strange characters",
)  # fmt: skip


def mutated(text: str, kind: str, random: Random) -> str:
    """Return the text as one kind of mutation leaves it."""
    lines = text.splitlines(keepends=True)
    if kind == "cut":
        return text[: random.randint(0, len(text))]
    if kind in ("without a line", "a line twice", "an error line"):
        place = random.randint(0, len(lines))
        new = [random.choice(ERROR_LINES) + "\n"] if kind == "an error line" else []
        rest = {"without a line": place + 1, "a line twice": max(0, place - 1)}.get(kind, place)
        return "".join([*lines[:place], *new, *lines[rest:]])
    if kind in ("a cell without a value", "a long number", "coloured"):
        cells = list((re.compile(r"\S+") if kind == "coloured" else _NUMBER).finditer(text))
        if not cells:
            return text
        cell = random.choice(cells)
        if kind == "coloured":
            new_cell = f"\x1b[31m{cell[0]}\x1b[0m"
        else:  # Python converts numbers of no more than 4300 digits
            new_cell = "9" * 5000 if kind == "a long number" else random.choice(NOTHINGS)
        return text[: cell.start()] + new_cell + text[cell.end() :]
    if kind == "grouped digits":
        separator = random.choice(SEPARATORS)
        return _AMOUNT.sub(lambda found: f"{int(found[0]):,}".replace(",", separator), text)
    if kind == "decimal commas":
        return re.sub(r"(?<![\w.:])(\d+)\.(\d+)(?![\w.:])", r"\1,\2", text)
    if kind == "strange characters":
        place = random.randint(0, len(text))
        return text[:place] + random.choice(("\ufeff", "\x00", "\ufffd", "\u00b2", "\u0663", "\u2028")) + text[place:]
    return text.replace("\n", "\r\n") if kind == "windows lines" else re.sub(" {2,}", "\t", text)


# --- columns ---------------------------------------------------------------------------------------------------------


def with_columns(text: str, separator: str, first: int, random: Random) -> str:
    """Return a table, whose rows begin with line `first`, with a new column and the others in another order."""
    lines = text.splitlines()
    width = max(len(line.split(separator)) for line in lines[first:])
    order = random.sample(range(width + 1), width + 1)
    new = iter(("new.column", *("7" for _ in lines)))
    rows = [[*line.split(separator), next(new)] for line in lines[first:]]
    moved = [separator.join(cells[place] for place in order if place < len(cells)) for cells in rows]
    return "\n".join([*lines[:first], *moved]) + "\n"

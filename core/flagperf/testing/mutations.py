"""Outputs of a tool as nobody has seen them yet: what releases, locales, terminals and failing drivers make of one that
is known. Whatever becomes of it, a parser gives right figures, or None or an error with a reason; never a wrong figure.
OutputSuite holds every recorded output against all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from random import Random

from flagperf.api import FIGURES, Reading
from flagperf.errors import UnknownLayout

Parse = Callable[[str], list[Reading]]
Mutation = Callable[[str, Random], str]

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
"""One that stands by itself: no part of a name, an address, a version or a date."""
_AMOUNT = re.compile(r"(?<![\w.:-])\d{4,12}(?=\b|MiB|W)")


def check_forms(parse: Parse, known: str, but: Collection[str] = ()) -> None:
    """Every mutation alone, then one or two together, by fixed seeds. `but` are those after which nothing in the text
    could tell that a figure is wrong."""
    for name in sorted(set(MUTATIONS) - set(but)):
        for seed in range(25):
            check_figures(parse, known, MUTATIONS[name](known, Random(seed)))
    for seed in range(50):
        check_figures(parse, known, _mutated(known, Random(seed), but))


def check_quotes(parse: Parse, text: str, quoted: str) -> None:
    """The text is refused, with the part of it that differs and without its rulers."""
    try:
        readings = parse(text)
    except UnknownLayout as error:
        assert quoted in str(error) and "-----" not in str(error), error
    else:
        raise AssertionError(f"it was read as {readings}: {text!r}")


def check_cut(parse: Parse, known: str, may_be_shorter: bool = True) -> None:
    """At every character: what is left is refused, or gives no other figure and property than the whole, and of no
    fewer cards unless `may_be_shorter`."""
    whole = parse(known)
    for length in range(len(known.rstrip("\n"))):
        readings = check_figures(parse, known, known[:length])
        assert may_be_shorter or not readings or len(readings) == len(whole), f"cut after {length} characters"
        for reading in readings:
            card = _same_card(reading, whole)
            assert card is not None and reading.properties.items() <= card.properties.items(), known[:length]


def _mutated(text: str, random: Random, but: Collection[str]) -> str:
    names = sorted(set(MUTATIONS) - set(but))
    for _ in range(random.randint(1, 2)):
        text = MUTATIONS[random.choice(names)](text, random)
    return text


def changed(text: str, old: str, new: str, count: int = -1) -> str:
    """Return a text with one thing changed, which must be in it."""
    assert old in text, f"{old!r} is not in {text!r}"
    return text.replace(old, new, count)


def check_figures(parse: Parse, known: str, text: str) -> list[Reading]:
    """What `parse` makes of `text`, a mutation of `known`; nothing where it refuses it. Fails on a wrong figure and on
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
    """By key; where that is another one, because what it was made of is gone, by the tool's number or the address."""
    found = [each for each in known if each.device_id == reading.device_id]
    for name in ("index", "pci_address"):
        told = reading.properties.get(name)
        found += [each for each in known if told and each.properties.get(name) == told]
    return found[0] if found else None


# --- mutations -------------------------------------------------------------------------------------------------------


def _cut(text: str, random: Random) -> str:
    return text[: random.randint(0, len(text))]


def _without_a_line(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True)
    place = random.randint(0, len(lines))
    return "".join(lines[:place] + lines[place + 1 :])


def _a_line_twice(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True)
    place = random.randint(0, len(lines))
    return "".join(lines[:place] + lines[max(0, place - 1) :])


def _an_error_line(text: str, random: Random) -> str:
    lines = text.splitlines(keepends=True)
    place = random.randint(0, len(lines))
    return "".join([*lines[:place], random.choice(ERROR_LINES) + "\n", *lines[place:]])


def _a_cell_without_a_value(text: str, random: Random) -> str:
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return text
    place = random.choice(numbers)
    return text[: place.start()] + random.choice(NOTHINGS) + text[place.end() :]


def _grouped_digits(text: str, random: Random) -> str:
    separator = random.choice(SEPARATORS)
    return _AMOUNT.sub(lambda found: f"{int(found[0]):,}".replace(",", separator), text)


def _decimal_commas(text: str, _random: Random) -> str:
    return re.sub(r"(?<![\w.:])(\d+)\.(\d+)(?![\w.:])", r"\1,\2", text)


def _coloured(text: str, random: Random) -> str:
    words = list(re.finditer(r"\S+", text))
    if not words:
        return text
    word = random.choice(words)
    return f"{text[: word.start()]}\x1b[31m{word[0]}\x1b[0m{text[word.end() :]}"


def _windows_lines(text: str, _random: Random) -> str:
    return text.replace("\n", "\r\n")


def _tabs(text: str, _random: Random) -> str:
    return re.sub(" {2,}", "\t", text)


def _strange_characters(text: str, random: Random) -> str:
    place = random.randint(0, len(text))
    return text[:place] + random.choice(("\ufeff", "\x00", "\ufffd", "\u00b2", "\u0663", "\u2028")) + text[place:]


def _long_number(text: str, random: Random) -> str:
    """Of more digits than Python converts."""
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return text
    place = random.choice(numbers)
    return text[: place.start()] + "9" * 5000 + text[place.end() :]


MUTATIONS: dict[str, Mutation] = {
    "cut": _cut,
    "without a line": _without_a_line,
    "a line twice": _a_line_twice,
    "an error line": _an_error_line,
    "a cell without a value": _a_cell_without_a_value,
    "grouped digits": _grouped_digits,
    "decimal commas": _decimal_commas,
    "coloured": _coloured,
    "windows lines": _windows_lines,
    "tabs": _tabs,
    "strange characters": _strange_characters,
    "a long number": _long_number,
}


# --- columns ---------------------------------------------------------------------------------------------------------


def with_columns(text: str, separator: str, first: int, random: Random) -> str:
    """A table whose rows begin with line `first`, with a new column somewhere and the others in another order."""
    lines = text.splitlines()
    width = max(len(line.split(separator)) for line in lines[first:])
    order = random.sample(range(width + 1), width + 1)
    new = iter(("new.column", *("7" for _ in lines)))
    rows = [_moved([*line.split(separator), next(new)], order, separator) for line in lines[first:]]
    return "\n".join([*lines[:first], *rows]) + "\n"


def _moved(cells: list[str], order: list[int], separator: str) -> str:
    return separator.join(cells[place] for place in order if place < len(cells))

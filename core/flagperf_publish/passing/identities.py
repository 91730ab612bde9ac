"""What identifies a machine or a person in the files of a run, and the pseudonyms that stand in its place.

In free text it is found by its form (addresses, serials of the bus, UUIDs, logins) or by what is beside it (homes,
serial numbers, and the folder of a Python, which may be named after a company or a project). Too much is better than
too little: four numbers with dots may be a version, and are replaced too.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

Found = Literal["uuid", "mac", "pci", "address", "login", "user", "serial", "path"]

_ALONE = r"(?<![0-9A-Za-z])", r"(?![0-9A-Za-z])"

_HEX = "[0-9a-fA-F]"

_FORMS: dict[Found, str] = {
    "uuid": rf"(?:[A-Za-z]{{2,8}}-)?{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    # The short form only where it has a letter: 12:00.0 may be a time. Others are found by the long form (pseudonyms).
    "pci": rf"{_HEX}{{4,8}}:{_HEX}{{2}}:{_HEX}{{2}}\.[0-7]|(?:[0-9][a-fA-F]|[a-fA-F]{_HEX}):[01]{_HEX}\.[0-7]",
    "mac": rf"{_HEX}{{2}}(?::{_HEX}{{2}}){{5,19}}|{_HEX}{{2}}(?:-{_HEX}{{2}}){{5}}"
    rf"|(?:0x)?{_HEX}{{4}}(?::{_HEX}{{4}}){{3}}|0x{_HEX}{{16}}|enx{_HEX}{{12}}"
    rf"|{_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}",
    "login": r"[A-Za-z0-9_][A-Za-z0-9_.+-]*@[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]",
    "address": rf"(?:[0-9]{{1,3}}\.){{3}}[0-9]{{1,3}}|(?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{0,4}}",
}
"""In the order in which they are tried: the first that fits a place counts."""

_PATTERN = re.compile("|".join(f"(?P<{kind}>{_ALONE[0]}(?:{form}){_ALONE[1]})" for kind, form in _FORMS.items()))

_BESIDE: dict[Found, tuple[re.Pattern[str], ...]] = {
    "user": (
        re.compile(r"(?<![\w.])(?:/[\w.-]+)*?/(?:home|Users|homes|users)/(?P<value>[A-Za-z0-9][A-Za-z0-9._-]*)"),
        re.compile(r"\\Users\\{1,2}(?P<value>[A-Za-z0-9][A-Za-z0-9._-]*)", re.IGNORECASE),
    ),
    "serial": (
        re.compile(
            r"(?:serial(?:[ _-]?(?:number|num|no))?\.?|\bs/?n)[\"']?\s*[:=#]\s*[\"']?"
            r"(?P<value>(?=[A-Za-z._/-]*[0-9])(?![0-9]+\.[0-9]+(?![\w./-]))[A-Za-z0-9][A-Za-z0-9._/-]{3,}[A-Za-z0-9])",
            re.IGNORECASE,
        ),
    ),
    "path": (re.compile(r"(?<![\w.])(?P<value>(?:/[\w.+@-]+){1,40})/bin/python[0-9.]*(?![\w-])"),),
}
"""Found by what is beside it. A serial number has a digit and five characters at least, and is not a decimal number."""

NEVER = frozenset(
    {
        "",
        "127.0.0.1",
        "0.0.0.0",
        "::1",
        "::",
        "localhost",
        "255.255.255.255",
        "root",
        "shared",
        "public",
        "default",
        "/usr",
        "/usr/local",
        "/opt/conda",
    }
)
"""Values that are the same everywhere."""


def identities_in(text: str) -> Iterator[tuple[Found, str]]:
    for match in _PATTERN.finditer(text):
        kind = match.lastgroup
        if kind is not None and _is_one(kind, match[0]):
            yield kind, match[0]  # type: ignore[misc]
    for kind, patterns in _BESIDE.items():
        for match in (match for pattern in patterns for match in pattern.finditer(text)):
            value = match["value"].rstrip(".")
            if value.lower() not in NEVER:
                yield kind, value


def forms_in(text: str) -> Iterator[re.Match[str]]:
    """Yield all that may identify by its form alone."""
    return _PATTERN.finditer(text)


def has_form(value: str) -> bool:
    """Return whether `forms_in` finds this value by itself."""
    found = _PATTERN.fullmatch(value)
    return found is not None and found.lastgroup is not None and _is_one(found.lastgroup, value)


def _is_one(kind: str, text: str) -> bool:
    if text.lower() in NEVER:
        return False
    if kind != "address":
        return True
    try:
        return not ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


# --- pseudonyms: host-1, card-3 ---------------------------------------------------------------------------------------
#
# Numbers follow the order of the values: whatever is sorted by name stays in its order, and every figure can be
# computed from the redacted files again.

KINDS = (
    "card", "host", "domain", "boot", "path", "image", "address", "pci", "serial", "uuid", "mac", "login", "user",
    "word", "setting",
)  # fmt: skip
"""A value that was found as several of these has the name of the first."""

_SLOT = re.compile(r"[a-z_]+:[0-9]{1,4}")
"""A device of a machine without cards, such as `cpu:0`. It is the same on every machine."""

_NOTHING = frozenset({"n/a", "[n/a]", "na", "none", "unknown", "null", "-", "0", "not available", "unspecified"})

_SHORTEST = {"host": 2, "user": 2}
"""Letters of a value that texts are searched for; 3 of all other kinds."""

_UNNAMED = "redacted"
"""Stands for a word with a letter whose small form differs from the one in the pattern."""

_LIST = re.compile(r"[\[\],./@:]")

_SHORT_PCI = re.compile(r"[0-9]{2}:[0-9]{2}\.[0-7]")

_PSEUDONYM = re.compile(rf"(?:{'|'.join(KINDS)})-[0-9]+".encode())


class Replaced(msgspec.Struct, frozen=True):
    """One value and its pseudonym."""

    kind: str
    pseudonym: str
    value: str


class Findings:
    """Gathers what identifies, from all files."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        """Value, in lower case -> its kind."""
        self._values: dict[str, str] = {}
        """Value, in lower case -> as the field has it that it is the name in, and not as a text writes it."""
        self._domains: list[re.Pattern[str]] = []
        """Of machines: whatever else is in one is a machine too."""

    def add(self, kind: str, value: str) -> None:
        key = value.lower()
        if key in NEVER or key in _NOTHING or (kind == "card" and _SLOT.fullmatch(value)):
            return
        if kind == "address" and not has_form(value):
            kind = "host"
        before = self._kinds.get(key)
        if before is None or KINDS.index(kind) < KINDS.index(before):
            self._kinds[key], self._values[key] = kind, value
        if kind == "pci" and value.count(":") == 2:  # texts leave out the domain
            self.add("pci", value.partition(":")[2])
        # texts have the short name of a machine too, and the names of others in its domain
        name, dot, domain = value.partition(".")
        if kind == "host" and dot and not has_form(value):
            self.add("host", name)
            if "." in domain and domain.lower() not in self._kinds:
                self.add("domain", domain)
                self._domains.append(re.compile(rf"[\w-]+(?:\.[\w-]+)*\.{re.escape(domain)}", re.IGNORECASE))

    def search(self, text: str) -> None:
        for kind, value in identities_in(text):
            self.add(kind, value)
        for domain in self._domains:
            for match in domain.finditer(text):
                self.add("host", match[0])

    def replacements(self) -> tuple[Replaced, ...]:
        """Return a pseudonym for each value. Digits are padded to keep the order."""
        counts = Counter(self._kinds.values())
        numbers: Counter[str] = Counter()
        found = []
        for key in sorted(self._kinds, key=lambda key: (KINDS.index(self._kinds[key]), self._values[key])):
            kind = self._kinds[key]
            numbers[kind] += 1
            width = len(str(counts[kind]))
            found.append(Replaced(kind, f"{kind}-{numbers[kind]:0{width}d}", self._values[key]))
        return tuple(found)


class Pseudonyms:
    """Replaces values, alone and in texts."""

    def __init__(self, replacements: Sequence[Replaced]) -> None:
        self._names = {each.value.lower(): each.pseudonym for each in replacements}
        words = [each.value for each in replacements if _is_word(each)]
        self._words = _any_of(words) if words else None

    def value(self, value: str) -> str:
        """Return what stands in place of a whole value."""
        return self._names.get(value.lower(), value)

    def text(self, text: str) -> str:
        """Replace words and forms in one pass.

        A value inside another is replaced with it, so that nothing of a login is left where its user is known as well.
        Where one value begins inside another, both names stand there.
        """
        found = []
        for match in self._words.finditer(text) if self._words is not None else ():
            before = text[max(match.start() - 2, 0) : match.start()]
            is_in_time = _SHORT_PCI.fullmatch(match[0]) and before[:1].isdigit() and before.endswith(":")
            if not is_in_time:  # 09:12:00.0 has no card 12:00.0
                found.append((match.start(), -match.end(), self._names.get(match[0].lower(), _UNNAMED)))
        for match in forms_in(text):
            if match[0].lower() in self._names:
                found.append((match.start(), -match.end(), self._names[match[0].lower()]))
        parts, end = [], 0
        for start, minus_stop, pseudonym in sorted(found, key=lambda each: each[:2]):
            if -minus_stop > end:
                parts += [text[end:start], pseudonym]
                end = -minus_stop
        return "".join([*parts, text[end:]])


def pseudonyms_in(bundle: Path) -> set[str]:
    """Return the pseudonyms in the files of a bundle, and whatever else looks like one."""
    found: set[bytes] = set()
    for path in bundle.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                for line in file:
                    found.update(_PSEUDONYM.findall(line))
    return {each.decode() for each in found}


def _is_word(each: Replaced) -> bool:
    """Return whether texts are searched for a value as it is.

    A value with a form is found by that. A short word, a small number and a setting such as `debug` are in every text.
    """
    if has_form(each.value) or len(each.value) < _SHORTEST.get(each.kind, 3):
        return False
    if each.value.isdigit() and len(each.value) < 5:
        return False
    return each.kind != "setting" or _LIST.search(each.value) is not None


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Return one pattern for all words, as a tree of their letters: a thousand hosts are found in one pass."""
    tree: _Tree = {}
    for word in sorted({word.lower() for word in words}):
        branch = tree
        for letter in word:
            branch = branch.setdefault(letter, {})
        branch[""] = {}
    return re.compile(rf"(?<![0-9A-Za-z]){_expression(tree)}(?![0-9A-Za-z])", re.IGNORECASE)


_Tree = dict[str, "_Tree"]


def _expression(tree: _Tree) -> str:
    """Return the expression of a tree. It tries longer words first."""
    branches = [re.escape(letter) + _expression(branch) for letter, branch in tree.items() if letter]
    if not branches:
        return ""
    found = branches[0] if len(branches) == 1 and "" not in tree else f"(?:{'|'.join(branches)})"
    return f"{found}?" if "" in tree else found

"""What identifies a machine or a person in free text, by its form: addresses, serials of the bus, UUIDs, logins; by
what is beside it: homes, serial numbers, and the folder of a Python, which may be named after a company or a project.

Too much is better than too little: four numbers with dots may be a version, and are replaced all the same.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Literal

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
"""Found by what is beside it. A serial number has a digit and five characters at least, and is no decimal number."""

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
"""They are the same everywhere."""


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
    """Whatever may be one by its form alone."""
    return _PATTERN.finditer(text)


def has_form(value: str) -> bool:
    """Whether `forms_in` finds this value by itself."""
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

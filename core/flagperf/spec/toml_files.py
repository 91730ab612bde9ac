"""Read TOML that somebody else wrote: regular files only, of limited size and depth. Explain what does not fit.

tomli and not the library's tomllib, which it became: here it is compiled, and `cases list` reads twelve files.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import tomli

from flagperf.errors import BadInput, unknown_name
from flagperf.files import read_regular

NotToml = tomli.TOMLDecodeError

MAX_TOML_BYTES = 4 << 20

MAX_INTEGER = 2**63 - 1
"""As TOML says, and because values are written as JSON."""

MAX_DEPTH = 32
"""Tables and lists inside each other. Deeper ones would exhaust the stack of whatever walks them."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file, which may be a link: people keep their configuration elsewhere."""
    try:
        return parse_toml(read_regular(path, MAX_TOML_BYTES, follow_links=True).decode())
    except OSError as error:
        kind = " (it is a link)" if os.path.islink(path) else ""  # noqa: PTH114  Path's raises for a long name
        raise BadInput(f"cannot read {path}{kind}: {error.strerror}") from None
    except ValueError as error:  # also UnicodeDecodeError
        raise BadInput(f"{path} is not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Raise NotToml for what is not TOML, and another ValueError for what nobody can mean."""
    too_deep = ValueError(f"tables and lists are nested more than {MAX_DEPTH} deep")
    too_large = ValueError("a whole number is beyond 64 bits")
    try:
        content = tomli.loads(text)
    except RecursionError:
        raise too_deep from None
    except NotToml:
        raise
    except ValueError as error:  # Python converts no number of thousands of digits
        raise too_large if "digits" in str(error) else error from None
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if any(isinstance(value, int) and abs(value) > MAX_INTEGER for value in level):
            raise too_large
        level = [value for value in level if isinstance(value, dict | list)]
        if not level:
            return content
    raise too_deep


_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}

Kind = type[msgspec.Struct]


def misfit(content: dict[str, Any], kind: Kind) -> str:
    """Return the first thing that does not fit, after its table: `[profiles.tiny] about: it is missing`.

    msgspec has already rejected the file, but its message neither names the table nor suggests near matches.
    """
    inside = [
        f"{place} {fault}"
        for place, table, table_kind in _tables(content, kind)
        for fault in (*_unknown_keys(table, table_kind), *_wrong_values(table, table_kind))
    ]
    return [*_unknown_keys(content, kind), *inside, *_wrong_values(content, kind)][0]


def _tables(content: dict[str, Any], kind: Kind) -> Iterator[tuple[str, Any, Kind]]:
    """Yield the tables of the file that are decoded into structs, each with its heading."""
    for name, hint in typing.get_type_hints(kind).items():
        parts = (hint, *typing.get_args(hint))
        struct = next((part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)), None)
        value = content.get(name)
        if struct is None or value is None:
            continue
        if typing.get_origin(hint) is dict and isinstance(value, dict):
            for key, table in value.items():
                quoted = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
                yield f"[{name}.{quoted}]", table, struct
        elif typing.get_origin(hint) is tuple and isinstance(value, list):
            yield from ((f"[[{name}]] {number}", table, struct) for number, table in enumerate(value, 1))
        else:
            yield f"[{name}]", value, struct


def _unknown_keys(table: Any, kind: Kind) -> Iterator[str]:
    known, keys = kind.__struct_fields__, table if isinstance(table, dict) else ()
    return (str(unknown_name("key", key, known)) for key in keys if key not in known)


def _wrong_values(table: Any, kind: Kind) -> Iterator[str]:
    try:
        msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        key = where.strip(".`")
        if missing := re.match(r"Object missing required field `(.*?)`", what):
            yield f"{missing[1]}: it is missing"
        elif choice := re.fullmatch(r"Invalid enum value '(.*)'", what):
            choices = typing.get_args(typing.get_type_hints(kind).get(key))
            yield f"{key}: {unknown_name('value', choice[1], choices)}"
        else:
            parts = what.split("`")  # every second one names types: "Expected `str | null`, got `int`"
            parts[1::2] = [
                " or ".join(_TYPE_NAMES.get(name, name) for name in part.split(" | ")) for part in parts[1::2]
            ]
            words = "".join(parts)
            yield f"{key}: {words[:1].lower()}{words[1:]}" if key else words

"""Reading TOML of others, explaining what does not fit."""

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

# Reading TOML that somebody else wrote: regular files only, of limited size and depth.
#
# tomli and not the library's tomllib, which it became: here it is compiled, and `cases list` reads twelve files.


NotToml = tomli.TOMLDecodeError

MAX_TOML_BYTES = 4 << 20

MAX_INTEGER = 2**63 - 1
"""As TOML says, and because values are written as JSON."""

MAX_DEPTH = 32
"""Tables and lists inside each other. Deeper ones would exhaust the stack of whatever walks them."""


def read_toml(path: Path) -> dict[str, Any]:
    """The file may be a link: people keep their configuration elsewhere."""
    try:
        return parse_toml(read_regular(path, MAX_TOML_BYTES, follow_links=True).decode())
    except OSError as error:
        kind = " (it is a link)" if os.path.islink(path) else ""  # noqa: PTH114  Path's raises for a long name
        raise BadInput(f"cannot read {path}{kind}: {error.strerror}") from None
    except ValueError as error:  # also UnicodeDecodeError
        raise BadInput(f"{path} is not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Raises NotToml for what is no TOML, and another ValueError for what nobody can mean."""
    try:
        content = tomli.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except NotToml:
        raise
    except ValueError as error:  # Python converts no number of thousands of digits
        raise _too_large() if "digits" in str(error) else error from None
    _check_values(content)
    return content


def _check_values(content: dict[str, Any]) -> None:
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if any(isinstance(value, int) and abs(value) > MAX_INTEGER for value in level):
            raise _too_large()
        level = [value for value in level if isinstance(value, dict | list)]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"tables and lists are nested more than {MAX_DEPTH} deep")


def _too_large() -> ValueError:
    return ValueError("a whole number is beyond 64 bits")


# Explains why a TOML file does not match its struct: unknown keys (with near matches), missing keys, wrong types.
#
# msgspec has already rejected the file, but its message neither names the table nor suggests near matches.


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
    """The first problem, prefixed with its table: `[profiles.tiny] about: it is missing`."""
    return next(_misfits(content, kind))


def _misfits(content: dict[str, Any], kind: Kind) -> Iterator[str]:
    yield from _unknown_keys(content, kind)
    for place, table, table_kind in _tables(content, kind):
        found = [*_unknown_keys(table, table_kind), *_wrong_values(table, table_kind)]
        yield from (f"{place} {fault}" for fault in found)
    yield from _wrong_values(content, kind)


def _tables(content: dict[str, Any], kind: Kind) -> Iterator[tuple[str, Any, Kind]]:
    """The tables of the file that are decoded into structs, each with its heading."""
    for name, hint in typing.get_type_hints(kind).items():
        struct = next((part for part in (hint, *typing.get_args(hint)) if _is_struct(part)), None)
        value = content.get(name)
        if struct is None or value is None:
            continue
        if typing.get_origin(hint) is dict and isinstance(value, dict):
            yield from ((f"[{name}.{_quoted(key)}]", table, struct) for key, table in value.items())
        elif typing.get_origin(hint) is tuple and isinstance(value, list):
            yield from ((f"[[{name}]] {number}", table, struct) for number, table in enumerate(value, 1))
        else:
            yield f"[{name}]", value, struct


def _is_struct(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, msgspec.Struct)


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'


def _unknown_keys(table: Any, kind: Kind) -> Iterator[str]:
    known, keys = kind.__struct_fields__, table if isinstance(table, dict) else ()
    return (str(unknown_name("key", key, known)) for key in keys if key not in known)


def _wrong_values(table: Any, kind: Kind) -> Iterator[str]:
    try:
        msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        yield _in_words(str(error), kind)


def _in_words(error: str, kind: Kind) -> str:
    missing = re.match(r"Object missing required field `(.*?)`", error)
    if missing:
        return f"{missing[1]}: it is missing"
    what, _, where = error.partition(" - at `$")
    key = where.strip(".`")
    choice = re.fullmatch(r"Invalid enum value '(.*)'", what)
    if choice:
        return f"{key}: {unknown_name('value', choice[1], _choices(kind, key))}"
    words = re.sub(r"`([^`]*)`", lambda match: _type_words(match[1]), what)
    return f"{key}: {words[:1].lower()}{words[1:]}" if key else words


def _choices(kind: Kind, key: str) -> tuple[str, ...]:
    return typing.get_args(typing.get_type_hints(kind).get(key))


def _type_words(names: str) -> str:
    return " or ".join(_TYPE_NAMES.get(name, name) for name in names.split(" | "))

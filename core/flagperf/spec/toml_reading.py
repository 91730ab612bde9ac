"""Reading TOML that somebody else wrote: regular files only, of limited size and depth.

tomli and not the library's tomllib, which it became: here it is compiled, and `cases list` reads twelve files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tomli

from flagperf.errors import BadInput
from flagperf.files import read_regular

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

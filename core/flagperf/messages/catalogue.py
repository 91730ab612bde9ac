"""The catalogues: `<language>.toml` beside this file, tables of templates in the syntax of str.format.

A translator edits those files alone. A test compares the codes of all languages and the parameters of each.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Literal, get_args

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Lang = Literal["en", "zh"]
LANGUAGES: tuple[Lang, ...] = get_args(Lang)


def template(code: str, lang: Lang) -> str:
    return catalogue(lang)[code]


def has_text(code: str) -> bool:
    return code in catalogue("en")


@functools.cache
def catalogue(lang: Lang) -> dict[str, str]:
    """Code -> template. The table of a code stands before its dot: [ending] timed_out is `ending.timed_out`."""
    with Path(__file__).with_name(f"{lang}.toml").open("rb") as file:
        tables = tomllib.load(file)
    return {f"{table}.{name}": text for table, texts in tables.items() for name, text in texts.items()}

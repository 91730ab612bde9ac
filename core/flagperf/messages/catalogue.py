"""The message catalogues: one `<language>.toml` in this folder, with templates in str.format syntax.

Translators edit only these files. A test checks that all languages have the same codes and parameters.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal, get_args

import tomli

Lang = Literal["en", "zh"]
LANGUAGES: tuple[Lang, ...] = get_args(Lang)


def template(code: str, lang: Lang) -> str:
    return catalogue(lang)[code]


def has_text(code: str) -> bool:
    return code in catalogue("en")


@functools.cache
def catalogue(lang: Lang) -> dict[str, str]:
    """Code -> template. A code is `table.key`: `timed_out` in [ending] is `ending.timed_out`."""
    with Path(__file__).with_name(f"{lang}.toml").open("rb") as file:
        tables = tomli.load(file)
    return {f"{table}.{name}": text for table, texts in tables.items() for name, text in texts.items()}

"""Every message in every language, with the same parameters; every code that the source says is in the catalogue."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagperf.messages import LANGUAGES, Lang, catalogue

CORE = Path(__file__).parents[2] / "core" / "flagperf"


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_language_has_every_code_with_the_same_parameters(lang: Lang) -> None:
    english, other = catalogue("en"), catalogue(lang)
    assert list(other) == list(english)
    for code, text in other.items():
        assert text.strip() or code.startswith("separator."), code
        assert fields(text) == fields(english[code]) and all(map(str.isidentifier, fields(text))), code


def test_chinese_texts_are_chinese() -> None:
    latin_alone = [
        code
        for code, text in catalogue("zh").items()
        if not any("\u4e00" <= letter <= "\u9fff" or letter in "、；：，（）" for letter in text)
    ]
    assert latin_alone == LATIN


LATIN = [
    "name.rank",
    "name.ranks",
    "tool.words",
    "environment.tool_failed",
    "environment.links",
    "align.key",
    "label.head_algbw",
    "label.head_busbw",
    "label.about_mfu",
    "page.memory_size",
]
"""Names and parameters alone."""


def said() -> Iterator[tuple[str, str, set[str] | None]]:
    """Place, code and parameters of every message(...), absent(...) and seen(...) whose code is a literal."""
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if name in ("message", "absent", "seen") and node.args:
                code = node.args[1 if name == "absent" else 0]
                if isinstance(code, ast.Constant):
                    names = {keyword.arg for keyword in node.keywords}
                    yield f"{path.relative_to(CORE)}:{node.lineno}", str(code.value), None if None in names else names


def test_every_code_that_is_said_is_in_the_catalogue_with_its_parameters() -> None:
    found, known = list(said()), catalogue("en")
    assert len(found) > 50
    assert [(place, code) for place, code, _ in found if code not in known] == []
    wrong = [(place, code) for place, code, names in found if names is not None and names != fields(known[code])]
    assert wrong == []

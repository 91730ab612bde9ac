"""Messages as data: a code with parameters. A catalogue per language (`en.toml`, `zh.toml`) puts it into words.

Whatever a record says in our own words (why a value is missing, how a run ended, what a mark means) is a Message, kept
beside its English sentence, so that a page in any language can say it. Words of others (a tool, a driver, an exception)
are parameters and stay as they were said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from flagperf.messages.catalogue import LANGUAGES, Lang, has_text, template

__all__ = [
    "LANGUAGES",
    "Lang",
    "Message",
    "choose",
    "clauses",
    "has_text",
    "listed",
    "message",
    "render",
    "template",
    "usable",
    "words",
]


class Message(msgspec.Struct, frozen=True):
    code: str
    params: dict[str, Any] = {}
    """Texts, numbers, lists of these, and messages."""

    def __str__(self) -> str:
        return render(self)

    def __hash__(self) -> int:
        return hash((self.code, repr(self.params)))


def message(code: str, /, **params: Any) -> Message:
    return Message(code, params)


def render(said: Message, lang: Lang = "en") -> str:
    """Raises KeyError or ValueError for a code or parameters that the catalogue does not have."""
    return template(said.code, lang).format(**{name: _words(value, lang) for name, value in said.params.items()})


def choose(text: Mapping[str, str], lang: Lang) -> str:
    """A text that a case or an adapter brought: in the language, else in English, else in any."""
    return text.get(lang) or text.get("en") or next(iter(text.values()), "")


def listed(items: Iterable[str], lang: Lang) -> str:
    return template("separator.items", lang).join(items)


def clauses(items: Iterable[str], lang: Lang) -> str:
    """Clauses of one sentence; empty ones are left out."""
    return template("separator.clauses", lang).join(item for item in items if item)


def usable(said: Message | None, text: str) -> Message | str:
    """A message from a record, which another version may have written: `text` where it cannot be put into words."""
    if said is None:
        return text
    try:
        render(said)
    except (LookupError, ValueError, TypeError, AttributeError):
        return text
    return said


def words(said: Message | str, lang: Lang) -> str:
    return render(said, lang) if isinstance(said, Message) else said


def _words(value: Any, lang: Lang) -> Any:
    if isinstance(value, Message):
        return render(value, lang)
    if isinstance(value, dict) and "code" in value:
        return render(msgspec.convert(value, Message), lang)
    if isinstance(value, list | tuple):
        return listed((str(_words(item, lang)) for item in value), lang)
    return value

"""Messages as data: a code with parameters, rendered by a catalogue per language (`en.toml`, `zh.toml`).

Every sentence of ours in a record (why a value is missing, how a run ended, what a mark means) is stored as a Message
next to its English text, so that a page can render it in any language. Output of tools, drivers and exceptions is
passed as a parameter and not translated.
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
    """Values are strings, numbers, messages, or lists of these."""

    def __str__(self) -> str:
        return render(self)

    def __hash__(self) -> int:
        return hash((self.code, repr(self.params)))


def message(code: str, /, **params: Any) -> Message:
    return Message(code, params)


def render(said: Message, lang: Lang = "en") -> str:
    """Raises KeyError for an unknown code or a missing parameter, ValueError for a template that cannot format it."""
    return template(said.code, lang).format(**{name: _words(value, lang) for name, value in said.params.items()})


def choose(text: Mapping[str, str], lang: Lang) -> str:
    """A text of a case or an adapter: in `lang`, else in English, else in any language."""
    return text.get(lang) or text.get("en") or next(iter(text.values()), "")


def listed(items: Iterable[str], lang: Lang) -> str:
    return template("separator.items", lang).join(items)


def clauses(items: Iterable[str], lang: Lang) -> str:
    """Join the clauses of one sentence, skipping empty ones."""
    return template("separator.clauses", lang).join(item for item in items if item)


def usable(said: Message | None, text: str) -> Message | str:
    """`said` if this version can render it, else the fallback `text`. Another version may have written the record."""
    if said is None:
        return text
    try:
        render(said)
    except (LookupError, ValueError, TypeError, AttributeError, msgspec.ValidationError):
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

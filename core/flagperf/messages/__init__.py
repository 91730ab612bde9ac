"""Messages as data: a code with parameters, rendered by a catalogue per language (`en.toml`, `zh.toml`).

Every sentence of ours in a record (why a value is missing, how a run ended, what a mark means) is stored as a Message
next to its English text, so that a page can render it in any language. Output of tools, drivers and exceptions is
passed as a parameter and not translated.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import tomli

from flagperf.kinds import Kind

# The message catalogues: one `<language>.toml` in this folder, with templates in str.format syntax.
#
# Translators edit only these files. A test checks that all languages have the same codes and parameters.


Lang = Literal["en", "zh"]

LANGUAGES: tuple[Lang, ...] = get_args(Lang)


def template(code: str, lang: Lang) -> str:
    return catalogue(lang)[code]


def has_text(code: str) -> bool:
    return code in catalogue("en")


@functools.cache
def catalogue(lang: Lang) -> dict[str, str]:
    """Return code -> template. A code is `table.key`: `timed_out` in [ending] is `ending.timed_out`."""
    with Path(__file__).with_name(f"{lang}.toml").open("rb") as file:
        tables = tomli.load(file)
    return {f"{table}.{name}": text for table, texts in tables.items() for name, text in texts.items()}


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
    """Raise KeyError for an unknown code or a missing parameter, ValueError for a template that cannot format it."""
    return template(said.code, lang).format(**{name: _words(value, lang) for name, value in said.params.items()})


def choose(text: Mapping[str, str], lang: Lang) -> str:
    """Return a text of a case or an adapter: in `lang`, else in English, else in any language."""
    return text.get(lang) or text.get("en") or next(iter(text.values()), "")


def listed(items: Iterable[str], lang: Lang) -> str:
    return template("separator.items", lang).join(items)


def clauses(items: Iterable[str], lang: Lang) -> str:
    """Join the clauses of one sentence, skipping empty ones."""
    return template("separator.clauses", lang).join(item for item in items if item)


def usable(said: Message | None, text: str) -> Message | str:
    """Return `said` if this version can render it, else `text`. Another version may have written the record."""
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


# Looks up the wording of reports by name. The texts are in the catalogues of flagperf.messages and in the kinds of
# cases; no other module of this package contains a sentence that a page prints.
#
# Names of metrics and columns are the same in all languages, so that a parser can match rows.


def say(name: str, lang: Lang, /, **values: object) -> str:
    return template(f"page.{name}", lang).format(**values)


def web(name: str, lang: Lang, /, **values: object) -> str:
    """Return a text of pages with charts."""
    return template(f"web.{name}", lang).format(**values)


def site(name: str, lang: Lang, /, **values: object) -> str:
    """Return a text of a leaderboard."""
    return template(f"site.{name}", lang).format(**values)


def label(name: str, lang: Lang, kind: Kind | None = None) -> str:
    """Return a label, in the wording of the case's kind if it has one."""
    own = kind.words.get(name) if kind else None
    return choose(own, lang) if own else template(f"label.{name}", lang)


def row_label(name: str, lang: Lang) -> str:
    """Return the head of a column of labels of measured rows. Those that only one case has stay as they are."""
    return template(f"row_label.{name}", lang) if has_text(f"row_label.{name}") else name


def remark(name: str, lang: Lang) -> str:
    """Return the remark for a general-table row that is not a metric, or an empty text."""
    return template(f"remark.{name}", lang) if has_text(f"remark.{name}") else ""


def explain(code: str, lang: Lang, detail: Message | str = "") -> str:
    """Explain a reason or a mark: its code, the meaning of the code, what was observed in this run."""
    said, meant = words(detail, lang), meaning(code, lang)
    if not said:
        return say("explained", lang, code=code, meaning=meant)
    return say("explained_detail", lang, code=code, meaning=meant, detail=said)


def meaning(code: str, lang: Lang) -> str:
    """Return the code itself if it is unknown: another version may have written it."""
    known = next((name for name in (f"reason.{code}", f"mark.{code}") if has_text(name)), None)
    return template(known, lang) if known else code

"""What reports say, by name. The texts themselves are in the catalogues of flagperf.messages and with the kinds of
cases; no other module of this package holds a sentence that a page prints.

Names of metrics and columns are the same in all languages, so that a parser can match rows.
"""

from __future__ import annotations

from flagperf.kinds import Kind
from flagperf.messages import Lang, Message, choose, clauses, has_text, listed, template, words

__all__ = ["Lang", "choose", "clauses", "explain", "label", "listed", "meaning", "remark", "say"]


def say(name: str, lang: Lang, /, **values: object) -> str:
    return template(f"page.{name}", lang).format(**values)


def label(name: str, lang: Lang, kind: Kind | None = None) -> str:
    """In the words of the case's kind, where that has its own."""
    own = kind.words.get(name) if kind else None
    return choose(own, lang) if own else template(f"label.{name}", lang)


def remark(name: str, lang: Lang) -> str:
    """Of a row of the general table that is no metric; empty where there is none."""
    return template(f"remark.{name}", lang) if has_text(f"remark.{name}") else ""


def explain(code: str, lang: Lang, detail: Message | str = "") -> str:
    """A reason or a mark: its code, what that means, what was seen in this run."""
    said, meant = words(detail, lang), meaning(code, lang)
    if not said:
        return say("explained", lang, code=code, meaning=meant)
    return say("explained_detail", lang, code=code, meaning=meant, detail=said)


def meaning(code: str, lang: Lang) -> str:
    """A code of another version means itself."""
    known = next((name for name in (f"reason.{code}", f"mark.{code}") if has_text(name)), None)
    return template(known, lang) if known else code

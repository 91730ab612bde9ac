"""Looks up the wording of reports by name. The texts are in the catalogues of flagperf.messages and in the kinds of
cases; no other module of this package contains a sentence that a page prints.

Names of metrics and columns are the same in all languages, so that a parser can match rows.
"""

from __future__ import annotations

from flagperf.kinds import Kind
from flagperf.messages import Lang, Message, choose, clauses, has_text, listed, template, words

__all__ = [
    "Lang",
    "choose",
    "clauses",
    "explain",
    "label",
    "listed",
    "meaning",
    "remark",
    "row_label",
    "say",
    "site",
    "web",
]


def say(name: str, lang: Lang, /, **values: object) -> str:
    return template(f"page.{name}", lang).format(**values)


def web(name: str, lang: Lang, /, **values: object) -> str:
    """Of pages with charts."""
    return template(f"web.{name}", lang).format(**values)


def site(name: str, lang: Lang, /, **values: object) -> str:
    """Of a leaderboard."""
    return template(f"site.{name}", lang).format(**values)


def label(name: str, lang: Lang, kind: Kind | None = None) -> str:
    """In the wording of the case's kind, if it has one."""
    own = kind.words.get(name) if kind else None
    return choose(own, lang) if own else template(f"label.{name}", lang)


def row_label(name: str, lang: Lang) -> str:
    """Head of a column of labels of measured rows. Those that only one case has stay as they are."""
    return template(f"row_label.{name}", lang) if has_text(f"row_label.{name}") else name


def remark(name: str, lang: Lang) -> str:
    """The remark for a general-table row that is not a metric, or empty."""
    return template(f"remark.{name}", lang) if has_text(f"remark.{name}") else ""


def explain(code: str, lang: Lang, detail: Message | str = "") -> str:
    """Explain a reason or a mark: its code, the meaning of the code, what was observed in this run."""
    said, meant = words(detail, lang), meaning(code, lang)
    if not said:
        return say("explained", lang, code=code, meaning=meant)
    return say("explained_detail", lang, code=code, meaning=meant, detail=said)


def meaning(code: str, lang: Lang) -> str:
    """The code itself if it is unknown: another version may have written it."""
    known = next((name for name in (f"reason.{code}", f"mark.{code}") if has_text(name)), None)
    return template(known, lang) if known else code

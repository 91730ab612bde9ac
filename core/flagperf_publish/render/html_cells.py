"""Cells and text as HTML. Every text goes through `escape`, here or in the modules that import it, and only once."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Sequence

from flagperf.messages import Lang, explain, web
from flagperf.report import document as doc
from flagperf.report.terminal import display_width
from flagperf.text import one_line

NO_VALUE = "–"

_SAFE_URL = re.compile(r"https?://[^\s<>\"'\\`]+", re.IGNORECASE)
_NUMBER = re.compile(r"[-+−]?[\d][\d,.]*(e[-+]?\d+)?x?( ?(%|[a-zA-Zµ°/]{1,12}))?", re.IGNORECASE)
LONG_TEXT = 34
"""Longer texts may be wrapped in a table."""


def escape(text: str) -> str:
    """Escape for HTML, on one line. Characters that control a terminal or the reading order become visible."""
    return html.escape(one_line(text))


class Remarks:
    """The footnotes of a page, in order of first use. Equal texts share a number."""

    def __init__(self, lang: Lang) -> None:
        self.lang: Lang = lang
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def reference(self, code: str, text: str) -> str:
        number = self._numbers.setdefault(text, len(self.texts) + 1)
        if number > len(self.texts):
            self.texts.append(text)
        return f'<sup><a href="#remark-{number}" title="{escape(code)}">{number}</a></sup>'

    def of_marks(self, marks: Sequence[str]) -> str:
        return "".join(self.reference(mark, explain(mark, self.lang)) for mark in marks)

    def of_empty(self, cell: doc.Empty) -> str:
        return self.reference(cell.reason, explain(cell.reason, self.lang, cell.detail))


def cell_html(cell: doc.TableCell, remarks: Remarks) -> str:
    match cell:
        case doc.Text(text, strong=strong):
            if text == doc.NOTHING:
                return f'<span class="none">{NO_VALUE}</span>'
            return f"<strong>{escape(text)}</strong>" if strong else escape(text)
        case doc.Value(text, unit, marks):
            return escape(f"{text} {unit}" if unit else text) + remarks.of_marks(marks)
        case doc.Empty():
            return f'<span class="none">{NO_VALUE}</span>' + remarks.of_empty(cell)
        case doc.Status(text, good):
            return f'<span class="pill {"good" if good else "bad"}">{escape(text)}</span>'
        case doc.Link(text, url):
            return link_html(text, url)
        case doc.Links(links):
            return ", ".join(link_html(link.text, link.url) for link in links)


def link_html(text: str, url: str, shown: str = "") -> str:
    """Link an address of http or https; others are shown. If `shown` shortens the text, pointing shows all of it."""
    if not is_web_address(url):
        return escape(text)
    title = f' title="{escape(text)}"' if shown and shown != text else ""
    inside = may_break(escape(shown)) if shown else escape(text)
    return f'<a href="{escape(url)}" rel="noopener noreferrer"{title}>{inside}</a>'


def links_html(links: Sequence[doc.Link]) -> str:
    """Link several sources of one row, by what tells their paths apart."""
    shown = told_apart([link.text for link in links])
    return ", ".join(link_html(link.text, link.url, text) for link, text in zip(links, shown, strict=True))


def short_path(text: str) -> str:
    """Return the end of a long path."""
    return "…/" + "/".join(text.rsplit("/", 2)[1:]) if len(text) > LONG_TEXT and text.count("/") > 2 else text


def told_apart(texts: Sequence[str]) -> list[str]:
    """`fp16` of `base/fp16/README.md` beside `base/fp32/README.md`; the ends of paths if nothing is left of one."""
    paths = [text.split("/") for text in texts]
    first, last = _num_equal(paths), _num_equal([path[::-1] for path in paths])
    kept = [path[first : len(path) - last] for path in paths]
    return list(map("/".join, kept)) if all(kept) else list(map(short_path, texts))


def _num_equal(paths: Sequence[Sequence[str]]) -> int:
    """Count the parts that all of them begin with."""
    columns = zip(*paths, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, columns))


def may_break(escaped: str) -> str:
    """Names and paths are wrapped between their parts."""
    return re.sub("([_/])", r"\1<wbr>", escaped)


def is_web_address(url: str) -> bool:
    return _SAFE_URL.fullmatch(url) is not None


def column_class(cells: Sequence[doc.TableCell]) -> str:
    """`num` for a column of numbers, `text` for one that may be wrapped, `short` for one that need not be."""
    if any(isinstance(cell, doc.Link | doc.Links) for cell in cells):
        return "text" if any(isinstance(cell, doc.Links) for cell in cells) else "short"
    said = [cell for cell in cells if not (isinstance(cell, doc.Empty) or text_of(cell) in ("", doc.NOTHING))]
    if all(isinstance(cell, doc.Value) or is_number(text_of(cell)) for cell in said):
        return "num"
    return "text" if any(display_width(text_of(cell)) > LONG_TEXT for cell in cells) else "short"


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def text_of(cell: doc.TableCell) -> str:
    if isinstance(cell, doc.Links):
        return ", ".join(link.text for link in cell.links)
    return "" if isinstance(cell, doc.Empty) else cell.text


def not_available(lang: Lang) -> str:
    return escape(web("not_available", lang))

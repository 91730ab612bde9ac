"""Data, model and weights: download links, and the data files that the runs used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from flagperf.report.document import Block, Bullets, Code, Heading, Link, TableCell, Text
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.rows import ROWS, row_remark, row_value
from flagperf.report.texts import say

DOWNLOADS: tuple[Literal["checkpoint", "dataset"], ...] = ("checkpoint", "dataset")


def downloads(page: PageRuns) -> Iterator[Block]:
    """One section per download, for training pages."""
    for name in DOWNLOADS:
        links = _links(page, name)
        if links:
            yield Heading(page.label(f"download_{name}"))
            yield Bullets(links)


def dataset(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("data_section"))
    yield Bullets((_line(page, "dataset"), *_links(page, "dataset")))


def weights(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("model_section"))
    yield from _data_tree(page)
    yield Bullets((_line(page, "model"), *_links(page, "checkpoint")))


def _links(page: PageRuns, name: Literal["checkpoint", "dataset"]) -> tuple[TableCell, ...]:
    return tuple(map(_link, page.manifest.links(name)))


def _link(text: str) -> Link:
    """Parses a URL or `name: URL`."""
    name, _, url = text.rpartition(": ")
    return Link(name or url, url)


def _line(page: PageRuns, row: str) -> Text:
    """The same text as in the general table."""
    value, remark = row_value(ROWS[row], page), row_remark(ROWS[row], page)
    return Text(say("with_remark", page.lang, text=value, remark=remark) if remark else value)


# --- the folder of data ---------------------------------------------------------------------------------------------

Tree = dict[str, Any]
"""Name -> its content; empty for a file."""


def _data_tree(page: PageRuns) -> Iterator[Block]:
    """The files in --data-dir. Nothing for runs without data files."""
    paths = sorted({file.path for recorded in page.runs for file in recorded.run.job.data_files})
    if paths:
        yield Code("\n".join(_branches(_tree(paths))))


def _tree(paths: Sequence[str]) -> Tree:
    tree: Tree = {}
    for path in paths:
        below = tree
        for name in " ".join(path.split()).split("/"):
            below = below.setdefault(name, {})
    return tree


def _branches(tree: Mapping[str, Tree]) -> Iterator[str]:
    names = list(tree)
    for name in names:
        is_last = name == names[-1]
        yield ("└── " if is_last else "├── ") + name
        yield from (("    " if is_last else "│   ") + line for line in _branches(tree[name]))

"""What stands above the results of an inference page: data, model and weights, machine and engine, in numbered
sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from flagperf.report.columns import COLUMNS
from flagperf.report.environment import environment
from flagperf.report.markdown import Notes, cell, escape
from flagperf.report.page_runs import PageRuns
from flagperf.report.parts import strategies
from flagperf.report.rows import ROWS, row_remark, row_value
from flagperf.report.table import printable
from flagperf.report.texts import clauses, label, say


def inference_sections(page: PageRuns, subject: str, notes: Notes) -> list[str]:
    """Blocks of Markdown. The section of results, which comes after them, has number 4."""
    return [
        "### 1. " + label("data_section", page.lang),
        "\n".join([_line(page, "dataset"), *_links(page, "dataset")]),
        "### 2. " + label("model_section", page.lang),
        *_data_tree(page),
        "\n".join([_line(page, "model"), *_links(page, "checkpoint")]),
        "### 3. " + label("machine_section", page.lang),
        "#### 3.1 " + escape(subject),
        *strategies(page),
        *environment(page, notes),
        _engine(page, notes),
    ]


def _line(page: PageRuns, row: str) -> str:
    """As the general table has it."""
    value, remark = row_value(ROWS[row], page), row_remark(ROWS[row], page)
    return "- " + escape(say("with_remark", page.lang, text=value, remark=remark) if remark else value)


def _links(page: PageRuns, name: Literal["checkpoint", "dataset"]) -> list[str]:
    return [f"  - {escape(link)}" for link in page.manifest.page.links(name)]


def _engine(page: PageRuns, notes: Notes) -> str:
    cells = [COLUMNS["engine"].of_run(recorded.run, page.lang) for recorded in page.runs]
    text = clauses(page.by_rows([cell(each, notes, page.lang) for each in cells]), page.lang)
    return "\n".join(["- ##### " + label("engine_section", page.lang), f"  - {text}"])


# --- the folder of data ---------------------------------------------------------------------------------------------

Tree = dict[str, Any]
"""Name -> what is below it; empty for a file."""


def _data_tree(page: PageRuns) -> list[str]:
    """What --data-dir held; nothing for runs without one."""
    paths = sorted({file.path for recorded in page.runs for file in recorded.run.job.data_files})
    return ["\n".join(["```text", *_branches(_tree(paths)), "```"])] if paths else []


def _tree(paths: Sequence[str]) -> Tree:
    tree: Tree = {}
    for path in paths:
        below = tree
        for name in printable(path).replace("`", "'").split("/"):
            below = below.setdefault(name, {})
    return tree


def _branches(tree: Mapping[str, Tree]) -> Iterator[str]:
    names = list(tree)
    for name in names:
        is_last = name == names[-1]
        yield ("└── " if is_last else "├── ") + name
        yield from (("    " if is_last else "│   ") + line for line in _branches(tree[name]))

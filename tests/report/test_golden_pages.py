"""Pages byte for byte, and what holds for all of them. After a change that is meant, write them again:

FLAGPERF_UPDATE_GOLDEN=1 pytest tests/report/test_golden_pages.py, and read the difference before committing it.
"""

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from golden_runs import aquila_run, glm_runs, llama2_70b_runs, llama_runs
from markdown_it import MarkdownIt
from recorded_bundles import recorded_bundle
from report_builders import cpu_run, metax_runs
from report_reading import LANGUAGES, footnotes, notes, tables

from flagperf.bundle.bundle import read_bundle
from flagperf_publish.pages.layouts import page

GOLDEN = Path(__file__).parents[1] / "golden"

WITH_STEPS = {
    "distilbert": metax_runs,
    "distilbert-cpu": lambda: [cpu_run()],
    "llama2_7b_finetune": llama_runs,
    "glm": glm_runs,
    "aquila_33b": lambda: [aquila_run()],
    "llama2_70b": llama2_70b_runs,
}
RECORDED = ("gemm", "collectives", "operators", "operators_replayed")
"""Recorded runs that measured rows."""

in_both_languages = pytest.mark.parametrize("lang", LANGUAGES)
of_every_page = pytest.mark.parametrize("name", [*WITH_STEPS, *RECORDED])
of_pages_with_steps = pytest.mark.parametrize("name", WITH_STEPS)


def golden_page(name, lang):
    return page(WITH_STEPS[name]() if name in WITH_STEPS else [read_bundle(recorded_bundle(name))], lang)


@in_both_languages
@of_every_page
def test_page_equals_the_golden_one(name, lang):
    path = GOLDEN / f"{name}-{lang}.md"
    text = golden_page(name, lang)
    if os.environ.get("FLAGPERF_UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text.encode() == path.read_bytes()


@in_both_languages
@of_every_page
def test_tables_are_whole_and_blocks_stand_apart(name, lang):
    text = golden_page(name, lang)
    found = tables(text)
    assert len(found) >= 2
    assert all({len(row) for row in table} == {len(table[0])} for table in found)
    for before, line in pairwise(text.splitlines()):
        kinds = [(each[:1] == "|", each.lstrip()[:2] == "- ") for each in (before, line)]
        assert kinds[0] == kinds[1] or "" in (before, line) or "```text" in text, (before, line)
    assert text.endswith("\n") and "\n\n\n" not in text and "\r" not in text


@in_both_languages
@of_every_page
def test_footnotes_are_numbered_from_one_and_each_is_referred_to(name, lang):
    """One that nothing refers to is not shown by renderers of Markdown."""
    text = golden_page(name, lang)
    found = footnotes(text)
    assert list(found) == list(range(1, len(found) + 1))
    assert {int(number) for number in re.findall(r"\[\^(\d+)\](?!:)", text)} == set(found)


@in_both_languages
@of_pages_with_steps
def test_headline_metrics_are_bold_rows_and_starred_columns(name, lang):
    general, *others = tables(golden_page(name, lang))[:3]
    bold = {row[1].strip("*").split(",")[0] for row in general[1:] if row[0].startswith("**")}
    assert bold
    for table in others:
        starred = {head.removeprefix("\\*") for head in table[0] if head.startswith("\\*")}
        assert starred == bold & {head.removeprefix("\\*") for head in table[0]}


@in_both_languages
def test_markdown_reads_three_tables_an_item_for_every_note_and_a_paragraph_for_every_footnote(lang):
    text = golden_page("distilbert", lang)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert [token.type for token in tokens].count("table_open") == 3
    contents = [token.content for token in tokens if token.type == "inline"]
    assert sum(content.startswith("[^") for content in contents) == len(footnotes(text)) == 3
    assert [note for group in notes(text).values() for note in group if note not in contents] == []


@in_both_languages
def test_general_table_points_to_every_column_and_to_no_other(lang):
    general, shown, _ = tables(golden_page("distilbert", lang))
    pointed = {re.split(r",|\(", row[1].strip("*"))[0] for row in general[1:] if re.search(r",见“|, see “", row[1])}
    assert pointed == {name.removeprefix("\\*") for name in shown[0][1:]}

"""The page as a whole. The golden pages are compared byte for byte; after a change that is meant, write them anew:

FLAGPERF_UPDATE_GOLDEN=1 pytest tests/report/test_report_page.py, and read the difference before committing it.
"""

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from report_builders import (
    GIB,
    MANIFEST,
    changed,
    cpu_run,
    metax_runs,
    node,
    recorded,
)
from report_llama import llama_runs
from report_parsing import LANGUAGES, footnotes, notes, performance, tables, unpadded, value

from flagperf.bundle.run_record import Ending
from flagperf.spec.node_facts import Fact
from flagperf_publish.pages.layouts import page

GOLDEN = Path(__file__).parents[1] / "golden"

PAGES = {
    "distilbert": metax_runs,
    "distilbert-cpu": lambda: [cpu_run()],
    "llama2_7b_finetune": llama_runs,
}


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_page_equals_the_golden_one(name, lang):
    path = GOLDEN / f"{name}-{lang}.md"
    text = page(PAGES[name](), lang)
    if os.environ.get("FLAGPERF_UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text.encode() == path.read_bytes()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(name, lang):
    found = tables(page(PAGES[name](), lang, published=True))
    assert len(found) == 3
    for table in found:
        assert {len(row) for row in table} == {len(table[0])}


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_tables_lists_and_notes_stand_apart(name, lang):
    text = page(PAGES[name](), lang)
    lines = text.splitlines()
    for before, line in pairwise(lines):
        kinds = [(each[:1] == "|", each.lstrip()[:2] == "- ") for each in (before, line)]
        assert kinds[0] == kinds[1] or "" in (before, line), (before, line)
    assert text.endswith("\n")
    assert "\n\n\n" not in text
    assert "\r" not in text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_markdown_reads_three_tables_an_item_for_every_note_and_a_paragraph_for_every_footnote(lang):
    text = page(metax_runs(), lang)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert [token.type for token in tokens].count("table_open") == 3
    contents = [token.content for token in tokens if token.type == "inline"]
    assert sum(content.startswith("[^") for content in contents) == len(footnotes(text)) == 3
    assert [note for group in notes(text).values() for note in group if note not in contents] == []


def test_both_languages_have_the_same_figures():
    english, chinese = (performance(page(metax_runs(), lang)) for lang in LANGUAGES)
    for one, other in zip(english, chinese, strict=True):
        assert {**one, "configuration": ""} == {**other, "configuration": ""}


def test_table_reads_back_as_the_rounded_metrics():
    run = metax_runs()[2].run
    row = performance(page(metax_runs(), "en"))[0]
    for name in ("e2e_time", "p_whole", "p_train", "p_core"):
        assert float(row[name]) == round(run.metric(name).value, 1)
    assert float(row["acc"]) == round(run.metric("acc").value, 3)
    assert row["MFU"].endswith("%")
    assert float(row["MFU"][:-1]) == round(run.metric("mfu").value * 100, 1)
    used, total = map(float, row["mem"].split("/"))
    assert (used, total) == tuple(round(run.metric(name).value / GIB, 1) for name in ("mem_used", "mem_total"))


def test_marked_cell_reads_back_as_its_number():
    text = page([cpu_run()], "en")
    row = performance(text)[0]
    assert row["p_core"] == "13.1[^4]"
    number, marks = value(row["p_core"])
    assert float(number) == 13.1
    assert [footnotes(text)[mark].partition(" ")[0] for mark in marks] == ["oversubscribed"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_empty_cell_has_a_note_with_its_reason_code(lang):
    text = page(metax_runs(), lang)
    found = footnotes(text)
    empties = [
        value(cell)[1]
        for row in performance(text)
        for name, cell in row.items()
        if value(cell)[0] == "/" and name != "fix_hp"
    ]
    assert len(empties) == 7
    for numbers in empties:
        assert [found[number].startswith(("run_failed", "unknown_peak")) for number in numbers] == [True]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_footnotes_are_numbered_from_one_and_each_is_referred_to(lang):
    """One that nothing refers to is not shown by renderers of Markdown."""
    text = page(metax_runs(), lang)
    found = footnotes(text)
    assert list(found) == list(range(1, len(found) + 1))
    assert {int(number) for number in re.findall(r"\[\^(\d+)\](?!:)", text)} == set(found)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_general_table_points_to_every_column_and_to_no_other(lang):
    text = page(metax_runs(), lang)
    general, shown, _ = tables(text)
    pointed = {re.split(r",|\(", row[1].strip("*"))[0] for row in general[1:] if re.search(r",见“|, see “", row[1])}
    assert pointed == {name.removeprefix("\\*") for name in shown[0][1:]}


def test_rows_are_ordered_and_the_standard_configuration_comes_first():
    rows = performance(page([*metax_runs(), recorded("single", devices=1)], "zh"))
    assert [(row["configuration"], row["fix_hp"]) for row in rows] == [
        ("C500单机单卡（1x1）", "/"),
        ("C500单机8卡（1x8）", "/"),
        ("C500单机8卡（1x8）", "bs=96, lr=1.5e-4"),
        ("C500两机16卡（2x8）", "/"),
    ]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_headline_metrics_are_bold_rows_and_starred_columns(name, lang):
    general, *others = tables(page(PAGES[name](), lang))[:3]
    bold = {re.split(r",", row[1].strip("*"))[0] for row in general[1:] if row[0].startswith("**")}
    assert bold
    for table in others:
        starred = {head.removeprefix("\\*") for head in table[0] if head.startswith("\\*")}
        assert starred == bold & {head.removeprefix("\\*") for head in table[0]}


def test_simulated_run_is_marked_everywhere():
    run = recorded(simulated=True)
    text = page([run], "en", allow_simulated=True)
    assert text.startswith("### MetaX (simulated) C500: configuration and results\n")
    assert "| Device | metax (simulated) C500 |" in unpadded(text)
    assert "simulated: no device was used" in text


HOSTILE = "a|b `c` <img src=x> *d* _e_ [f](g) \\ ~h~ &lt;\nnew | line\x1b[31m"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_foreign_text_can_neither_break_a_table_nor_become_markup(lang):
    plain = "a|b `c` <img src=x> *d* _e_ [f](g) \\ ~h~ &lt; new | line[31m"
    reference = changed(MANIFEST.references[0], source=HOSTILE)
    manifest = changed(MANIFEST, model=HOSTILE, references=(reference,))
    facts = node(machine=Fact(HOSTILE, "stated"), cpu=Fact(None, "absent", HOSTILE))
    runs = [
        recorded(manifest=manifest, nodes=(facts,)),
        recorded("b", manifest=manifest, nodes=(facts,), ending=Ending("failed", HOSTILE), figures={}),
    ]
    text = page(runs, lang)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens if token.type == "inline" for child in token.children]
    assert {child.type for child in inline} <= {"text", "text_special", "strong_open", "strong_close"}
    rendered = ["".join(child.content for child in token.children) for token in tokens if token.type == "inline"]
    assert sum(plain in content for content in rendered) == 5  # machine, model, source, and two footnotes
    assert all(len(row) == len(table[0]) for table in tables(text) for row in table)


LINKS = {"checkpoint": "https://example.org/weights", "dataset": ["https://example.org/a", "https://example.org/b"]}


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_pages_of_every_kind_link_to_data_and_checkpoints(kind):
    manifest = changed(MANIFEST, kind=kind, page=changed(MANIFEST.page, downloads=LINKS))
    text = page([recorded(manifest=manifest)], "en")
    links = [line for line in text.splitlines() if line.startswith("- <https://")]
    assert sorted(links) == [f"- <https://example.org/{name}>" for name in ("a", "b", "weights")]


def test_a_download_that_is_no_address_is_text():
    manifest = changed(MANIFEST, page=changed(MANIFEST.page, downloads={"dataset": "ask the [authors]"}))
    assert "### Test dataset\n\n- ask the \\[authors\\]\n" in page([recorded(manifest=manifest)], "en")


def test_batch_sizes_stand_inside_their_bullet_and_name_rows_where_they_differ():
    text = page(llama_runs(), "en")
    assert "\n* Input batch size\n  1. local batch size (LBS)" in text
    assert ": 4 (row 1), 1 (row 2)\n" in text
    assert (
        "  4. global batch size (LBS x GAS x data parallel ranks): 4 x 1 x 1 = 4 (row 1), 1 x 1 x 8 = 8 (row 2)\n"
        in text
    )

"""What is found on a page of results, one thing at a time; a page without it is clean."""

from __future__ import annotations

import pytest
from page_builders import CLEAN_ROW, COLUMNS, GENERAL, lint, result_text, rules_of, table

from flagperf.errors import BadInput
from flagperf_publish.published.page_source import parse_page


def changed(**cells: str) -> tuple[str, ...]:
    found = dict(zip(COLUMNS, CLEAN_ROW, strict=True)) | cells
    return tuple(found.values())


@pytest.mark.parametrize(
    ("cells", "fields"),
    [
        ({}, {}),
        ({}, {"title": "英伟达"}),
        ({"acc": "91.5%"}, {}),  # the same accuracy
        ({"e2e_time": "/[^1]", "p_core": "1942.6[^2]"}, {"after": "\n[^1]: not_measured\n"}),  # a footnote is a reason
    ],
)
def test_a_page_without_contradictions_is_clean(cells, fields):
    page = lint(result_text(changed(**cells), **fields))
    assert (page.case, page.findings) == ("distilbert", ())


@pytest.mark.parametrize(
    ("cells", "rule"),
    [
        ({"p_core": "1800.0"}, "throughput_order"),
        ({"mem": "41.0/40.0"}, "over_capacity"),
        ({"mem": "13.9/64.0"}, "total_is_not_capacity"),
        ({"acc": "91.5"}, "out_of_range"),
        ({"acc": "0.9"}, "target_missed"),
        ({"p_core": "14.59.0"}, "unread_cell"),
        ({"配置": "A100单机8卡"}, "unread_cell"),
        ({"配置": "A100四机8卡（1x8）"}, "card_count"),
        ({"配置": "C500单机8卡（1x8）"}, "devices_differ"),
        ({"p_whole": ""}, "empty_cells"),
        ({"precision": "fp32"}, "tf32_called_fp32"),
        ({"p_core": "99999"}, "above_peak"),
    ],
)
def test_one_wrong_cell_is_one_finding_with_its_line(cells, rule):
    text = result_text(changed(**cells))
    found = [finding for finding in lint(text).findings if finding.rule == rule]
    assert found
    assert {text.split("\n")[finding.line - 1] for finding in found} == {"| " + " | ".join(changed(**cells)) + " |"}


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"title": "沐曦"}, "vendor_differs"),
        ({"short": "metax C500"}, "devices_differ"),
        ({"dataset": "openwebtext"}, "dataset_differs"),
        ({"listed": GENERAL[:-1]}, "list_row_missing"),
        ({"listed": (*GENERAL, "p_val_core")}, "column_missing"),
        ({"before": "   - CPU型号:\n"}, "empty_facts"),
        ({"before": "### 2. a\n### 2. b\n"}, "duplicate_section"),
        ({"after": "一句话\n"}, "ragged_row"),
        ({"after": "| 1 | 2 |\n"}, "ragged_row"),
    ],
)
def test_the_rest_of_the_page(fields, rule):
    assert rules_of(lint(result_text(CLEAN_ROW, **fields))) == [rule]


def test_more_than_the_cards_times_one():
    one = changed(配置="A100单机单卡（1x1）", p_whole="200.0", p_train="210.0", p_core="220.0")
    assert "scaling_over_100" in rules_of(lint(result_text(one, CLEAN_ROW)))


def test_an_mfu_without_its_throughput_and_one_of_another_precision():
    columns, listed = (*COLUMNS, "MFU"), (*GENERAL, "MFU")
    empty = (*changed(p_core="/", p_train="/", p_whole="/"), "36.2%")
    assert "mfu_without_throughput" in rules_of(lint(result_text(empty, columns=columns, listed=listed)))
    share = 1942.6 / 8 * 512 * 6 * 66_955_010 / 156e12
    fp16 = (*changed(precision="fp16"), f"{share:.1%}")
    page = lint(result_text(fp16, columns=columns, listed=listed))
    assert [each.cell for each in page.recomputed] == [f"{share:.1%}"]
    assert "precision_differs" in rules_of(page)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("652.78%", {"utilisation_over_100"}),
        ("100.1%", {"utilisation_over_100"}),
        ("120", {"utilisation_over_100"}),
        ("-22.6%", {"share_not_positive"}),
        ("0%", {"share_not_positive"}),
        ("0", {"share_not_positive"}),
        ("100%", set()),
        ("36.2", set()),
        ("0.36", set()),
        ("/", set()),
    ],
)
@pytest.mark.parametrize("model", ["distilbert", "unknown_model"])
def test_an_mfu_is_above_0_and_at_most_100_percent(text, rules, model):
    columns, listed = (*COLUMNS, "MFU"), (*GENERAL, "MFU")
    source = result_text((*CLEAN_ROW, text), columns=columns, listed=listed, model=model)
    found = [each for each in lint(source).findings if each.rule in ("utilisation_over_100", "share_not_positive")]
    assert {each.rule for each in found} == rules
    assert all(text in source.split("\n")[each.line - 1] and text in str(each.message) for each in found)


def test_a_layout_that_does_not_fill_the_cards():
    heads = ("配置", "precision", "parallel", "fix_hp", "token/p/s", "mem")
    row = ("C500四机32卡（4x8）", "amp", "TP8PP4DP2", "/", "100.5", "62/64")
    text = result_text(
        row, columns=heads, listed=heads[1:], title="Metax GPU", device="曦云®C500 64G", short="metax C500",
        model="llama2_70b", dataset="pile wikipedia",
    )  # fmt: skip
    assert rules_of(lint(text)) == ["parallel_product"]


def test_an_older_page_says_the_shape_by_its_file():
    heads = ("训练资源", "配置文件", "运行时长(s)", "目标精度", "收敛精度", "Steps数", "性能（samples/s)")
    row = ("两机8卡", "config_A100x2x8", "1453.51", "0.92", "0.9208", "2760", "1092.23")
    page = lint(f"### Nvidia GPU配置与运行信息参考\n- 加速卡型号: A100\n\n{table(heads, row)}")
    assert rules_of(page) == ["card_count"]
    assert page.case == ""


def test_a_case_that_the_page_does_not_name_can_be_given():
    text = result_text(changed(acc="0.9"), model="another model")
    assert lint(text).case == ""
    assert rules_of(lint(text)) == []
    assert rules_of(lint(text, case="distilbert")) == ["target_missed"]


@pytest.mark.parametrize("text", ["", "# nothing\n", table(("a", "b"), ("1", "2")), "\x1b[31m" * 1000])
def test_a_page_without_results_is_refused(text):
    with pytest.raises(BadInput, match="no table of results"):
        lint(text)


def test_hostile_cells_are_texts_and_nothing_else():
    for cell in ("\x1b[2J", "=cmd()", "<script>", "{0.__class__}", "%s" * 100, "9" * 3000, "1e999999", "-1"):
        page = lint(result_text(changed(p_core=cell, acc=cell, mem=cell, fix_hp=cell, 配置=cell)))
        assert page.findings
        assert all(str(finding.message) for finding in page.findings)


def test_columns_that_are_missing_or_doubled_or_unknown():
    assert lint(table(("配置",), ("A100单机8卡（1x8）",))).findings == ()
    twice = table(("配置", "acc", "acc", "?"), ("A100单机8卡（1x8）", "0.5", "0.6", "x"))
    assert rules_of(lint(twice)) == []


def test_deeply_nested_lists_and_quotes_end():
    deep = "\n".join(" " * level + "- a: b" for level in range(2000)) + "\n" + ">" * 5000 + "\n"
    assert len(parse_page(deep).facts) == 2000

"""What the notes, the environment section and the remarks say of the runs."""

import re

import pytest
from report_builders import MANIFEST, changed, cpu_run, device, job, metric, metrics, no_metric, node, recorded
from report_reading import footnotes, notes, performance, unpadded

from flagperf.api import precision
from flagperf.bundle.run_record import Ending, RecordedRun, ended
from flagperf.messages import message
from flagperf.metrics.entry import Metric
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf.spec.node_facts import Fact
from flagperf_publish.pages.layouts import page


def with_target(lang, **inputs):
    figures = {**metrics(), "target": metric("target", 0, inputs={"metric": "acc", **inputs})}
    return page([recorded(ending=Ending("target_missed", "acc"), figures=figures)], lang)


def test_unsupported_run_says_unsupported_and_a_run_without_ending_says_so():
    unsupported = page([recorded(ending=Ending("unsupported", "needs torch >= 2.4"), figures={})], "en")
    assert "unsupported (not supported here): unsupported: needs torch >= 2.4" in unsupported
    assert "no ending was recorded" in page([recorded(ending=None, figures={})], "en")


def test_run_that_missed_its_target_keeps_its_figures_and_rounding_does_not_hide_it():
    text = with_target("zh", target=0.92, got=0.9128)
    assert performance(text)[0]["acc"] == "0.913"
    assert "目标acc 0.920，实际0.913：未达到" in text
    assert "target acc 0.910, got 0.9098: not reached" in with_target("en", target=0.91, got=0.9098)


def test_a_card_that_could_not_be_used_is_noted_with_its_problem():
    sick, here = changed(device(7), problem="GPU requires reset"), node()
    facts = changed(here, vendors=(changed(here.vendors[0], devices=(device(0), sick)),))
    run = changed(recorded(), nodes=(facts,))
    assert f"card {sick.id} of node0 could not be used and took no part: GPU requires reset" in page([run], "en")
    assert f"card {sick.id} of node0 could not be used" in str(run_report([run]).blocks)
    assert f"node0的加速卡{sick.id}无法使用，未参与运行：GPU requires reset" in page([run], "zh")
    assert "could not be used" not in page([recorded()], "en")


def test_a_busy_host_is_marked_and_its_load_noted_where_the_cores_are_the_devices():
    run = cpu_run()
    figures = {each.name: each for each in run.run.metrics}
    figures["cpu_others"] = metric("cpu_others", 0.42, inputs={"cores": 1})
    figures["p_core"] = changed(figures["p_core"], marks=("busy_host",))
    busy = changed(run, run=changed(run.run, metrics=tuple(figures.values())))
    for lang, words in (("en", "other processes used 42.0% of the 1 cores"), ("zh", "其他进程占用了1个核心的42.0%")):
        text = page([busy], lang)
        assert words in text
        assert [note for note in footnotes(text).values() if note.startswith("busy_host")]
    assert "other processes" not in page([recorded(figures={**metrics(), "cpu_others": figures["cpu_others"]})], "en")


def test_missing_steps_and_a_missing_verdict_are_said_and_evaluated_rows_are_not_guessed():
    figures = {**metrics(), "padding_ratio": metric("padding_ratio", None, reason="not_applicable")}
    figures["acc"] = metric("acc", 0.9)
    del figures["steps_kept"], figures["mem_used"], figures["target"]
    text = page([recorded(figures=figures)], "en")
    assert "steps kept / (not_measured), padding ratio / (not_applicable)" in text
    assert "target: no verdict, not_measured" in text
    assert "evaluated rows" not in text


def test_case_without_target_says_so():
    figures = {name: each for name, each in metrics().items() if name != "target"}
    text = unpadded(page([recorded(manifest=changed(MANIFEST, target=None), figures=figures)], "en"))
    assert "the case declares no target" in text
    assert "| Quality | acc, see “Performance” | |" in text


def test_repeats_of_one_configuration_are_counted():
    text = page([recorded("a"), recorded("b", created="2025-01-02T04:00:00Z")], "en")
    assert "Row 2: run b of 2025-01-02, repeat 2 of 2" in text
    assert notes(text)["Configuration"] == ["profile standard, the published configuration"]


# --- environment ----------------------------------------------------------------------------------------------------


def test_environment_is_printed_once_for_every_distinct_one():
    other = recorded("b", nodes=(node(kernel=Fact("6.1.0")),), devices=1)
    one_row = page([recorded()], "en")
    assert one_row.count("##### Hardware") == 1 and "pplies to" not in one_row
    text = page([recorded(), recorded("c", created="2025-02-01T00:00:00Z"), other], "en")
    assert text.count("##### Hardware") == 2
    assert "\n\nRow 1: applies to C500, 1 node, 1 device (1x1)\n\n- ##### Hardware" in text
    assert "\n\nRows 2, 3: applies to C500, 1 node, 8 devices (1x8)\n\n- ##### Hardware" in text


def test_counts_of_used_devices_do_not_split_an_environment():
    text = page([recorded(), recorded("b", devices=1)], "en")
    assert text.count("##### Hardware") == 1 and "devices used per node: 1, 8" in text


def test_the_link_to_the_host_is_shown_where_it_is_known_each_kind_once():
    plan = job()
    links = ({"pcie": "Gen4 x16"}, {"pcie": "Gen4 x16"}, {"pcie": "Gen4 x8", "pcie_now": "Gen1 x8"})
    devices = tuple(changed(device(index), properties=given) for index, given in enumerate(links))
    made = recorded(plan=changed(plan, nodes=(changed(plan.nodes[0], devices=devices),)))
    assert "  - Host link: PCIe Gen4 x16, PCIe Gen4 x8 (Gen1 x8 when it was looked at)\n" in page([made], "en")
    assert "  - 主机链路：PCIe Gen4 x16" in page([made], "zh")
    assert "Host link" not in page([recorded()], "en")


def test_device_of_unknown_size_and_bundle_without_environment():
    plan = job()
    plan = changed(plan, nodes=(changed(plan.nodes[0], devices=(changed(device(0), memory_bytes=None),)),))
    made = recorded(plan=plan)
    text = page([RecordedRun(made.run, (), made.path)], "en")
    assert "Accelerator: MetaX C500, memory size not reported" in text
    assert re.search(r"  - Kernel: /\[\^\d+\]", text)


def test_nodes_that_differ_from_the_one_shown_are_named():
    nodes = (node(host="node0"), node(host="node1", kernel=Fact("6.1.0"), os=Fact("Debian 12")))
    assert "other nodes differ in kernel, os" in page([recorded(plan=job(nodes=2), nodes=nodes)], "en")
    assert "other nodes differ" not in page([recorded(plan=job(nodes=2))], "en")


# --- what was changed -----------------------------------------------------------------------------------------------


def test_other_changes_name_the_rows_that_have_them():
    runs = [recorded("a", profile="tiny"), recorded("b", profile="tiny", set_values={"training.batch_size": 8})]
    assert "| Other changes | profile tiny; Row 2: bs=8 (--set) | |" in unpadded(page(runs, "en"))


def test_a_changed_standard_profile_is_not_called_the_published_configuration():
    run = recorded(file_values={"evaluation.target": 0.5}, set_values={"training.learning_rate": 1.5e-4})
    text = page([run], "en")
    assert "the published configuration\n" not in text
    verdict = "profile standard with changed values is not the published configuration"
    assert notes(text)["Configuration"][0].startswith(verdict)
    assert "| Other changes | lr=1.5e-4 (--set), evaluation.target=0.5 (file flagperf.toml) | |" in unpadded(text)
    assert "配置档standard的取值有改动，不是发布配置" in page([run], "zh")


def test_another_precision_is_a_changed_value():
    plan = job()
    values = {**plan.config.values, "precision": "amp-bf16"}
    config = changed(plan.config, values=values, deviations={"precision": "--precision"})
    text = page([recorded(plan=changed(plan, config=config, precision=precision("amp-bf16")))], "en")
    assert "| Other changes | precision=amp-bf16 (--precision) | |" in unpadded(text)
    assert performance(text)[0]["fix_hp"] == "/"


def test_a_vendors_tuning_alone_stays_the_published_configuration_and_is_listed():
    tuning = {"training.batch_size": 96}
    text = page([recorded(tuning=tuning)], "en")
    assert notes(text)["Configuration"] == ["profile standard, the published configuration"]
    assert "| Other changes | bs=96 (tuning metax) | |" in unpadded(text)
    rows = tuple(row for row in MANIFEST.page.rows if row != "extra")
    without_row = changed(MANIFEST, page=changed(MANIFEST.page, rows=rows))
    assert (
        "changed: bs=96 (tuning metax)"
        in notes(page([recorded(manifest=without_row, tuning=tuning)], "en"))["Configuration"]
    )


def test_notes_are_grouped_by_subject_and_say_once_what_holds_for_all_rows():
    found = notes(page([recorded("a", devices=1), recorded("b"), recorded("c", nodes=(node(), node()))], "en"))
    assert list(found) == ["Runs", "Configuration", "Timing", "Quality", "Memory", "MFU", "Data files"]
    assert [note.partition(":")[0] for note in found["Runs"][:3]] == ["Row 1", "Row 2", "Row 3"]
    rest = [note for subject, group in found.items() for note in group[3 if subject == "Runs" else 0 :]]
    assert rest and not [note for note in rest if note.startswith("Row")]


def test_reasons_in_our_own_words_are_chinese_on_a_chinese_page_and_those_of_others_stay():
    ending = ended("failed", message("ending.rank_failed", rank=1, why="RuntimeError: boom", log="logs/rank-00001.log"))
    text = page([recorded(ending=ending, figures={})], "zh")
    assert "run_failed（运行未成功）：failed：rank 1：RuntimeError: boom，见logs/rank-00001.log" in text
    died = message("probe.because", what=message("probe.died", how=message("exit.code", code=3)), why="no libmx.so")
    why = no_metric("mem_used", "invalid_telemetry", message("samples.probe_died", node=0, why=died))
    text = page([recorded(figures={**metrics(), "mem_used": why})], "zh")
    assert "invalid_telemetry（遥测数据不可信）：节点0：探针提前结束（返回码3）：no libmx.so" in text


def test_remark_of_the_case_replaces_ours():
    remarks = {"p_core": {"en": "ours | yours", "zh": "自定"}}
    manifest = changed(MANIFEST, page=changed(MANIFEST.page, remarks=remarks))
    assert "see “Performance”** | ours \\| yours |" in unpadded(page([recorded(manifest=manifest)], "en"))


# --- power ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lang", "lines"),
    [
        ("en", ["- Power", "Mean power: 312.4 W", "Energy: 1,234.6 kJ", "Device utilisation: 98.7%"]),
        ("zh", ["- 功率与能耗", "平均功率：312.4 W", "能耗：1,234.6 kJ", "设备利用率：98.7%"]),
    ],
)
def test_pages_and_cards_have_what_was_read_of_power_and_nothing_else(lang, lines):
    read = {"power_mean": (312.44, "W"), "energy": (1_234_567.0, "J"), "utilisation_mean": (0.987, "share")}
    found = {name: Metric(name, unit, name, "device", value) for name, (value, unit) in read.items()}
    why = message("power.not_read", figure="throttle_reasons", card="0000:05:00.0")
    run = recorded(figures={**metrics(), **found, "throttled_share": no_metric("throttled_share", "not_measured", why)})
    text = page([run], lang)
    assert all(line in text for line in lines)
    assert "Throttled" not in text and "降频" not in text
    card = to_terminal(run_report([run]), width=200)
    assert "mean power" in card and "312.4 W" in card
    assert "- Power" not in page([recorded()], "en")

"""What the terminal shows of one run and of several, at 80 and at 200 columns."""

import re

from report_builders import MANIFEST, changed, cpu_run, metax_runs, metric, metrics, recorded
from report_reading import facts, table_notes, table_rows

from flagperf.bundle.run_record import Ending
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf.spec.manifest import Page, Quality


def printed(*runs, width=200, color=False) -> str:
    return to_terminal(run_report(runs), width=width, color=color)


def test_card_of_a_run():
    found = facts(recorded())
    assert found["run"] == ("succeeded", "")
    assert found["e2e_time"] == ("420.2 s", "")
    assert found["p_whole"] == ("1621.0 samples/s", "")
    assert found["p_core"] == ("1755.5 samples/s", "1750.1 to 1761.0 (95 %, batch means)")
    assert found["token/p/s"] == ("2917 tokens/s per device", "")
    assert found["step time"] == ("146.1 / 150.2 / 164.4 ms", "p50 / p90 / p99")
    assert found["acc"] == ("0.913", "target acc 0.910, got 0.913: reached; acc over 872 evaluated rows")
    assert found["loss"] == ("0.6931 -> 0.1234", "first step -> last step")
    assert found["mem"][0] == "37.0/64.0 GiB"
    assert found["mem"][1].startswith(
        "of one device, peak on 0000:05:00.0 212.5 s after training began, read by mx-smi"
    )
    assert found["MFU"][0] == "23.4%"
    assert "peak 15 TFLOP/s (fp32; source: MetaX C500 product brief" in found["MFU"][1]
    assert found["padding ratio"] == ("97.4%", "padding among all computed positions")
    assert (found["steps kept"][0], found["steps dropped"][0]) == ("2,620", "20")


def test_card_says_why_there_is_no_mfu_and_what_is_not_comparable():
    found = facts(cpu_run())
    assert found["MFU"][0] == "unknown_peak"
    assert found["MFU"][1].startswith("unknown_peak (")
    assert "profile tiny is not the published configuration" in found["run"][1]
    assert "host memory of one worker" in found["mem"][1]


def test_card_of_a_failed_run_has_its_reason_and_only_what_was_measured():
    figures = {"e2e_time": metric("e2e_time", 12.0), "p_core": metric("p_core", None, reason="run_failed")}
    found = facts(recorded(ending=Ending("timed_out", "no end after 60 s"), figures=figures))
    assert found == {"run": ("timed_out", "no end after 60 s"), "e2e_time": ("12.0 s", "")}
    assert facts(recorded(ending=None, figures={}))["run"][0] == "no_ending"


def test_loss_that_the_case_reports_is_shown_once():
    manifest = changed(MANIFEST, qualities=(Quality("loss", "nats", "mean", format="loss"),), target=None)
    manifest = changed(manifest, page=Page(("configuration", "loss"), ("loss",)))
    assert facts(recorded(manifest=manifest))["loss"] == ("0.1234 nats", "")


def test_plain_card_is_aligned_text_without_escapes_or_boxes():
    text = printed(recorded())
    assert text.isascii()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0] == "distilbert 1, profile standard, metax C500, 1x8, fp32"
    assert lines[1] == "run            succeeded"
    assert lines[2] == "e2e_time       420.2 s"
    assert "Published results of this case, for comparison" in lines
    assert lines[-1] == "bundle: runs/20250102T030405Z-distilbert-metax-1x8-aaaa"
    assert all(line == line.rstrip() for line in lines)


def test_marks_of_a_card_are_named_beside_values_and_explained_once():
    text = printed(cpu_run())
    assert re.search(r"^p_core +13.1 samples/s +oversubscribed$", text, re.MULTILINE)
    assert len(re.findall(r"^oversubscribed +more workers than cores", text, re.MULTILINE)) == 1


"""Words of configurations, which have a short form: `C500 1x8`."""


def test_a_verdict_is_a_fact_of_the_card():
    verdict = metric("loss_aligned", None, reason="not_applicable", detail="another experiment")
    found = facts(recorded(figures={**metrics(), "loss_aligned": verdict}))
    assert found["loss aligned"][1].endswith("another experiment")


def test_table_of_runs_has_reason_codes_in_place_of_empty_cells():
    failed, overridden, standard = table_rows(*metax_runs())
    assert list(failed)[:5] == ["run", "status", "vendor", "Configuration", "precision"]
    assert failed["status"] == "out_of_memory"
    assert failed["p_core"] == "run_failed"
    assert overridden["MFU"] == "unknown_peak"
    assert overridden["fix_hp"] == "bs=96, lr=1.5e-4"
    assert standard["mem"] == "37.0/64.0"


def test_notes_below_the_table_name_their_runs_unless_they_hold_for_all():
    (note,) = table_notes(*metax_runs())
    assert note.startswith("20250102T040000Z: profile standard with changed values is not the published")
    assert note.endswith("changed: bs=96 (tuning metax), lr=1.5e-4 (--set)")
    other = changed(cpu_run(), run=changed(cpu_run().run, id="other"))
    (note,) = table_notes(cpu_run(), other)
    assert note.startswith("profile tiny is not the published configuration")


def test_runs_of_several_cases_share_a_table():
    manifest = changed(MANIFEST, name="other", page=Page(("configuration", "token/p/s"), ()), references=())
    first, second = table_rows(recorded(), recorded("b", manifest=manifest))
    assert (first["case"], second["case"]) == ("distilbert", "other")
    assert (first["token/p/s"], second["token/p/s"]) == ("not_applicable", "2917")
    assert (first["acc"], second["acc"]) == ("0.913", "not_applicable")

"""A simulated run says so wherever it is shown, and is no page unless asked for."""

import json
from pathlib import Path

import pytest
from report_builders import recorded

from flagperf.bundle.bundle import create_bundle
from flagperf.cli import run_cli
from flagperf.cli.run import next_command
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf_publish.pages.layouts import page

WORD = "metax (simulated)"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    simulated = recorded(simulated=True)
    return create_bundle(tmp_path, simulated.run, simulated.nodes)


def test_md_is_refused_unless_it_is_allowed(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", str(bundle), "--format", "md"]) == 2
    refused = capfd.readouterr()
    assert refused.out == ""
    assert "is simulated" in refused.err and "--allow-simulated" in refused.err
    assert run_cli(["report", str(bundle), "--format", "md", "--allow-simulated"]) == 0
    assert capfd.readouterr().out.startswith("### MetaX (simulated) C500: ")


@pytest.mark.parametrize("simulated", [True, False])
def test_the_command_that_a_run_names_at_its_end_prints_its_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], simulated: bool
) -> None:
    run = recorded(simulated=simulated)
    create_bundle(tmp_path, run.run, run.nodes)
    assert run_cli(next_command([run], str(tmp_path))) == 0
    assert capfd.readouterr().out.startswith("### MetaX ")


def test_tables_exports_and_lists_say_it(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["report", str(bundle)], ["runs", "list", "--runs-dir", str(bundle.parent)]):
        assert run_cli(command) == 0
        assert WORD in capfd.readouterr().out
    assert run_cli(["report", str(bundle), "--format", "json"]) == 0
    (run,) = json.loads(capfd.readouterr().out)["runs"]
    assert (run["vendor"], run["simulated"]) == (WORD, True)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_place_of_a_page_that_names_the_card_says_it(lang: str) -> None:
    text = page([recorded(simulated=True)], lang, allow_simulated=True)
    own, *_published = text.split("| nvidia A100")
    lines = [line for line in own.splitlines() if "C500" in line and "product brief" not in line]
    assert len(lines) == 5  # heading, accelerator, device, row, row among published results
    assert all("(simulated)" in line for line in lines)


def test_the_terminal_says_it_in_title_row_and_note() -> None:
    run = recorded(simulated=True)
    card, table = (to_terminal(run_report(runs), width=200) for runs in ([run], [run, recorded("real")]))
    assert card.startswith(f"distilbert 1, profile standard, {WORD} C500")
    assert f"this run: {WORD} C500" in card and f"succeeded  {WORD}" in table
    assert "no device was used" in card and "no device was used" in table
    assert "simulated" not in page([recorded()], "en")

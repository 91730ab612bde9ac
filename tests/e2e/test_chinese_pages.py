"""Chinese pages of runs that ended in every way have no English but names, units, codes and words of tools."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_flagperf import environment, flagperf, interrupt, start, wait_for_step

from flagperf.kit import module_command

METAX = Path(__file__).parents[2] / "plugins" / "metax" / "tests"
RIG = f"{METAX / 'test_metax_conformance.py'}:MetaxRig"

pytestmark = pytest.mark.run

WORDS_OF_OTHERS = ("this case was asked to fail",)
SENTENCE = re.compile(r"[A-Za-z][a-z]+(?:[ ,;]+[a-z]{2,}){2,}")
"""Three words in a row. Names and codes are shorter, or have no spaces."""


def english(page: str) -> list[str]:
    for words in WORDS_OF_OTHERS:
        page = page.replace(words, "")
    without_links = re.sub(r"<https?://[^>]*>|`[^`]*`|来源：[^；]*；", "", page)  # a source is quoted
    return SENTENCE.findall(without_links)


def chinese_page(folder: Path, *options: str) -> str:
    done = flagperf(folder, "report", "latest", "--format", "md", "--lang", "zh", *options)
    assert done.code == 0, done.stderr
    return done.stdout


def test_a_run_that_failed(tmp_path: Path) -> None:
    assert flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=raise").code == 3
    page = chinese_page(tmp_path)
    assert "rank 0：ValueError: this case was asked to fail，见logs/rank-00000.log" in page
    assert english(page) == []


def test_a_run_whose_worker_was_killed(tmp_path: Path) -> None:
    assert flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=kill").code == 3
    page = chinese_page(tmp_path)
    assert "rank 0：被SIGKILL终止，通常是内核在内存耗尽时所为" in page
    assert english(page) == []


def test_a_run_that_timed_out(tmp_path: Path) -> None:
    assert flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=hang", "--timeout", "8").code == 5
    page = chinese_page(tmp_path)
    assert "timed_out：未在8秒内完成" in page
    assert english(page) == []


def test_a_run_that_was_interrupted(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "trouble", "--set", "trouble.mode=hang")
    wait_for_step(tmp_path, process)
    assert interrupt(process).code == 130
    page = chinese_page(tmp_path)
    assert "interrupted：被Ctrl-C中止" in page
    assert english(page) == []


def test_a_run_that_missed_its_target(tmp_path: Path) -> None:
    assert flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=miss_target").code == 7
    assert english(chinese_page(tmp_path)) == []


def test_a_simulated_run(tmp_path: Path) -> None:
    command = ["run", "distilbert", "--vendor", "metax", "--set", "training.max_steps=12"]
    done = subprocess.run(
        [*module_command(sys.executable, "flagperf.testing.simulate"), RIG, *command],
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": str(METAX)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    page = chinese_page(tmp_path, "--allow-simulated")
    assert "模拟运行" in page
    assert english(page) == []


def test_english_is_found_where_it_is() -> None:
    assert english("注：the probe ended early（返回码3）") == ["the probe ended early"]
    assert english("- p_core：46.5，rank 3，batch_means_95，torch 2.4.0+cpu") == []

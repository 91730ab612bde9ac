"""Memory before launch, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagperf.cli import run_cli


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def planned(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert run_cli(["plan", "llama2_70b", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_layout_alone_says_what_a_card_that_is_not_here_needs(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--parallel", "TP8PP4DP1", "--device-model", "C500")
    assert (found["profile"], found["shape"]) == ("standard", "1x32")
    memory = found["memory"]
    assert memory["total_bytes"] == 64 * 2**30
    # 80 layers and two tables over 32 cards, norms apart: 2.1 B parameters of 4 bytes, and twice that for AdamW
    assert memory["parts"]["optimizer state"] == pytest.approx(8 * 68_976_648_192 / 32, rel=0.02)
    assert set(memory["parts"]) == {"parameters", "gradients", "optimizer state", "activations"}


def test_a_plan_for_devices_that_are_here_has_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--vendor", "cpu", "--parallel", "TP2PP2DP1")
    assert len(found["job"]["nodes"][0]["devices"]) == 4
    assert 0 < sum(found["memory"]["parts"].values()) < found["memory"]["total_bytes"]


def test_what_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["plan", "llama2_70b", "--parallel", "TP8PP1DP1", "--device-model", "C500"]) == 0
    text = capsys.readouterr().out
    assert "It does not fit" in text
    assert "the card has     64.0 GiB (nominal, of the published C500-64GB)" in text

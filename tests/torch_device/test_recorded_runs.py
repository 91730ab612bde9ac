"""Operators recorded on a card whose torch type nobody knows are replayed on the CPU, and the other way round."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import SITE, read_run
from nova_machine import NovaMachine

from flagperf.bundle.paths import OPERATORS_FILE, rank_events
from flagperf.event_files import read_events
from flagperf.events import SpanEnded, StepFinished

pytestmark = [pytest.mark.run, pytest.mark.full]

TRAINING = ("llama2_70b", "--set", "training.max_steps=4", "training.warmup_steps=1")
RECORD = ("--record-operators", "--record-steps", "2")


class Both:
    """One folder of runs, on the CPU and on a nova card."""

    def __init__(self, nova: NovaMachine) -> None:
        self.folder, self.flagperf = nova.folder, nova.flagperf
        nova.environ["PYTHONPATH"] += f"{os.pathsep}{SITE}"

    def run(self, *arguments: str, vendor: str, runs: str) -> tuple[Path, Any]:
        done = self.flagperf("run", *arguments, "--vendor", vendor, "--runs-dir", runs)
        assert done.code == 0, done.stderr
        assert self.flagperf("runs", "verify", "latest", "--runs-dir", runs).code == 0
        (bundle,) = (self.folder / runs).iterdir()
        return bundle, read_run(bundle)


@pytest.fixture
def both(nova: NovaMachine) -> Both:
    return Both(nova)


def measured_steps(bundle: Path) -> int:
    events = read_events(bundle / rank_events(0)).events
    (ended,) = [event for event in events if isinstance(event, SpanEnded) and event.name == "training"]
    assert sum(isinstance(event, StepFinished) for event in events) == ended.step
    return ended.step


def recorded_names(bundle: Path) -> set[str]:
    (part,) = json.loads((bundle / OPERATORS_FILE).read_bytes())["parts"]
    return {call["operator"] for call in part["calls"]}


def check_replay(run: Any, device: str) -> None:
    timed = [row for row in run["rows"] if "arguments" in row["labels"]]
    assert {row.get("status", "ok") for row in timed} == {"ok"}, [row for row in timed if row.get("problem")]
    assert all(row["median"] > 0 for row in timed)
    checked = [row["facts"]["check"] for row in timed]
    assert sum(words.startswith("finite where the host's") for words in checked) > len(checked) / 2
    assert run["job"]["recording"]["vendor"] == device
    assert {row["problem"] for row in run["rows"] if "arguments" not in row["labels"]} >= {
        "a view: it computes nothing"
    }


def test_record_on_a_card_and_replay_on_the_cpu(both: Both) -> None:
    bundle, run = both.run(*TRAINING, *RECORD, vendor="nova", runs="recorded")
    assert measured_steps(bundle) == 2
    assert run["recorded"]["steps"] == 2 and run["recorded"]["problem"] is None
    names = recorded_names(bundle)
    # Forward, backward (in a thread of the device), optimizer.
    assert {"aten::embedding", "aten::embedding_dense_backward", "aten::addcdiv_"} <= names
    _, replayed = both.run("replaying", "--from", str(bundle), vendor="cpu", runs="replayed")
    check_replay(replayed, "nova")
    shown = both.flagperf("runs", "show", "latest", "--runs-dir", "replayed").stdout
    assert "Operators of a recorded step" in shown and "nova" in shown
    page = both.flagperf("report", "latest", "--runs-dir", "recorded", "--format", "md").stdout
    assert "the last 2 steps were not measured: their operators were recorded" in page


def test_record_on_the_cpu_and_replay_on_a_card(both: Both) -> None:
    bundle, _ = both.run("aquila_33b", *RECORD, vendor="cpu", runs="recorded")
    _, replayed = both.run("replaying", "--from", str(bundle), vendor="nova", runs="replayed")
    check_replay(replayed, "cpu")
    refused = both.flagperf("run", "replaying", "--vendor", "cpu", "--from", str(bundle), "--from-rank", "3")
    assert (refused.code, "has no rank 3" in refused.stderr) == (2, True)
    refused = both.flagperf("run", "llama2_70b", "--vendor", "cpu", "--from", str(bundle))
    assert (refused.code, "replays no operators" in refused.stderr) == (2, True)

"""Whole runs by the real command on cards whose torch type nobody knows: adapter to page, and every ending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import Done, bundle_of, metric, processes_of, read_run, said, wait_for_event
from nova_machine import MIB, NovaMachine, finished

from flagperf.bundle.paths import rank_events
from flagperf.event_files import read_events
from flagperf.events import StepFinished, WorkerEnded
from flagperf.testing.torch_device.memory import CONTEXT_BYTES

pytestmark = pytest.mark.run

CASE = ("llama2_70b", "--vendor", "nova")
TWO_CARDS = (*CASE, "--devices", "2", "--set", "training.warmup_steps=1")
"""The first step is written when it is done. Operators 1,715 to 3,261 are the second."""


def ended(machine: NovaMachine, done: Done, code: int) -> tuple[Path, Any]:
    """The bundle is kept and verifies, and no process is left, whatever the ending."""
    assert done.code == code, done.stderr
    assert "Traceback" not in done.stderr
    assert machine.flagperf("runs", "verify", "latest").code == 0
    bundle = bundle_of(machine.folder)
    assert not processes_of(bundle)
    return bundle, read_run(bundle)


def test_a_run_on_two_cards_has_all_its_figures_and_a_page(nova: NovaMachine) -> None:
    settings = ("--devices", "2", "--precision", "amp-fp16", "--set", "training.max_steps=8")
    _, run = ended(nova, nova.flagperf("run", "distilbert", "--vendor", "nova", *settings), 0)
    assert run["simulated"] is False
    assert metric(run, "p_core")["value"] > 0
    used, allocator = metric(run, "mem_used"), metric(run, "mem_allocator")
    assert allocator["value"] > 0 and allocator["value"] % (2 * MIB) == 0
    # Two ways that know nothing of each other: the card reports what the allocator has and what a process costs.
    assert metric(run, "mem_remainder")["value"] == CONTEXT_BYTES
    assert used["value"] == allocator["value"] + CONTEXT_BYTES
    assert set(used["inputs"]["per_device"]) == {"0/NOVA-00", "0/NOVA-11"}
    page = nova.flagperf("report", "latest", "--format", "md")
    assert page.code == 0 and "Nova" in page.stdout


@pytest.mark.full
def test_collectives_on_two_cards_and_messages_beyond_their_memory(nova_site: Path, tmp_path: Path) -> None:
    """A row that does not fit says so, and the next one is measured."""
    machine = NovaMachine(nova_site, tmp_path, card_bytes=CONTEXT_BYTES + 160 * MIB)
    short = {
        "collectives.operations": '["all_reduce", "all_to_all"]',
        "collectives.precisions": '["fp32"]',
        "collectives.headline": "256KiB",
        "collectives.sizes": '["256MiB"]',
        "measure.seconds": "0.01",
        "measure.min_samples": "10",
    }
    settings = [word for key, value in short.items() for word in ("--set", f"{key}={value}")]
    _, run = ended(machine, machine.flagperf("run", "collectives", "--vendor", "nova", "--devices", "2", *settings), 0)
    measured = [(row["labels"]["bytes"], row.get("status", "ok")) for row in run["rows"]]
    assert measured == [("262144", "ok"), ("268435456", "out_of_memory")] * 4
    assert set(metric(run, "all_reduce_node")["inputs"]["per_device"]) == {"0/NOVA-00", "0/NOVA-11"}


def test_out_of_memory_is_4_with_what_the_allocator_had(nova_site: Path, tmp_path: Path) -> None:
    machine = NovaMachine(nova_site, tmp_path, card_bytes=CONTEXT_BYTES + 16 * MIB)
    done = machine.flagperf("run", *CASE, "--set", "training.batch_size=1024")
    _, run = ended(machine, done, 4)
    assert said(run)[0] == "out_of_memory" and "OutOfMemoryError: out of memory" in said(run)[1]
    assert 0 < metric(run, "mem_allocator")["value"] <= 16 * MIB


@pytest.mark.full
def test_a_hang_and_an_error_of_the_second_of_two_cards(nova_site: Path, tmp_path: Path) -> None:
    """One run hangs until its time limit. The other one, with the error, fills that time."""
    stuck, broken = (NovaMachine(nova_site, tmp_path / name) for name in ("stuck", "broken"))
    hanging = stuck.start_flagperf("run", *TWO_CARDS, "--timeout", "30", FLAGPERF_TEST_DEVICE="hang_at=100,rank=1")
    wait_for_event(stuck.folder, hanging, "data_described", rank=1)
    done = broken.flagperf("run", *TWO_CARDS, FLAGPERF_TEST_DEVICE="error_at=3000,rank=1")
    check_error(broken, done)
    check_hang(stuck, finished(hanging))


def check_error(machine: NovaMachine, done: Done) -> None:
    """It is 3, with what the device said and the rank that it said it to, although the other one complains too. The
    steps before the one that broke the device are written."""
    bundle, run = ended(machine, done, 3)
    log = "logs/rank-00001.log"
    why = "AcceleratorError: an illegal memory access was encountered in operator 3000"
    assert said(run) == ("failed", f"rank 1: {why}; see {log}")
    assert "torch.AcceleratorError" in (bundle / log).read_text()
    events = read_events(bundle / rank_events(1)).events
    assert [event.reason for event in events if isinstance(event, WorkerEnded)] == [why]
    assert [event.step for event in events if isinstance(event, StepFinished)] == [1]


def check_hang(machine: NovaMachine, done: Done) -> None:
    """It is 5, with the place where it was in the log."""
    bundle, run = ended(machine, done, 5)
    assert said(run) == ("timed_out", "not finished within 30 s")
    log = (bundle / "logs" / "rank-00001.log").read_text()
    assert "in synchronize" in log and "llama2_70b/case.py" in log
    assert "in synchronize" not in (bundle / "logs" / "rank-00000.log").read_text()

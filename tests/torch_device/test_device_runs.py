"""Whole runs by the real command on cards whose torch type nobody knows: adapter to page, and every ending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import Done, bundle_of, metric, read_run, said
from nova_machine import MIB, NovaMachine

from flagperf.testing.torch_device.memory import CONTEXT_BYTES

pytestmark = pytest.mark.run

CASE = ("llama2_70b", "--vendor", "nova")


def ended(machine: NovaMachine, done: Done, code: int) -> tuple[Path, Any]:
    """The bundle is kept and verifies, whatever the ending."""
    assert done.code == code, done.stderr
    assert "Traceback" not in done.stderr
    assert machine.flagperf("runs", "verify", "latest").code == 0
    bundle = bundle_of(machine.folder)
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


def test_out_of_memory_is_4_with_what_the_allocator_had(nova_site: Path, tmp_path: Path) -> None:
    machine = NovaMachine(nova_site, tmp_path, card_bytes=CONTEXT_BYTES + 16 * MIB)
    done = machine.flagperf("run", *CASE, "--set", "training.batch_size=1024")
    _, run = ended(machine, done, 4)
    assert said(run)[0] == "out_of_memory" and "OutOfMemoryError: out of memory" in said(run)[1]
    assert 0 < metric(run, "mem_allocator")["value"] <= 16 * MIB


def test_a_device_error_is_3_with_what_the_device_said(nova: NovaMachine) -> None:
    done = nova.flagperf("run", *CASE, FLAGPERF_TEST_DEVICE="error_at=3000")
    _, run = ended(nova, done, 3)
    assert said(run)[0] == "failed"
    assert "AcceleratorError: an illegal memory access was encountered in operator 3000" in said(run)[1]


def test_a_hang_ends_at_the_time_limit_with_5_and_its_stack_in_the_log(nova: NovaMachine) -> None:
    done = nova.flagperf("run", *CASE, "--timeout", "30", FLAGPERF_TEST_DEVICE="hang_at=100")
    bundle, run = ended(nova, done, 5)
    assert said(run)[0] == "timed_out"
    log = (bundle / "logs" / "rank-00000.log").read_text()
    assert "in synchronize" in log and "llama2_70b/case.py" in log

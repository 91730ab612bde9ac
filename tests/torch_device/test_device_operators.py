"""The case `operators` on a device that is not the CPU: one operator of every group, and rows that the card lacks
memory for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import bundle_of, read_run
from nova_machine import MIB, NovaMachine

from flagperf.testing.torch_device.memory import CONTEXT_BYTES
from flagperf_cases.operators.groups import OPERATORS

pytestmark = pytest.mark.run

SHORT = {"measure.seconds": 0.002, "measure.warmup_seconds": 0.0, "measure.warmup_cap_seconds": 0.001}


def rows_of(machine: NovaMachine, **values: Any) -> list[Any]:
    settings = SHORT | {f"operators.{key}": json.dumps(value) for key, value in values.items()}
    chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = machine.flagperf("run", "operators", "--vendor", "nova", *chosen)
    assert done.code == 0, done.stderr
    return list(read_run(bundle_of(machine.folder))["rows"])


def test_operators_of_every_group_are_right_in_both_directions(nova: NovaMachine) -> None:
    by_group = {operator.group: name for name, operator in OPERATORS.items()}
    rows = rows_of(nova, only=list(by_group.values()), dtypes=["fp32", "bf16", "int16"])
    assert {row["labels"]["group"] for row in rows} == set(by_group)
    assert [row for row in rows if row.get("status", "ok") != "ok"] == []
    assert {row["clock"] for row in rows} == {"device_events"}


def test_a_shape_beyond_the_cards_memory_is_a_row_that_says_so_and_the_next_one_runs(
    nova_site: Path, tmp_path: Path
) -> None:
    machine = NovaMachine(nova_site, tmp_path, card_bytes=CONTEXT_BYTES + 64 * MIB)
    rows = rows_of(machine, only=["relu", "sigmoid"], shapes=["model", "tiny"], dtypes=["fp32"], directions=["forward"])
    found = [(row["labels"]["shape"].split()[0], row.get("status", "ok")) for row in rows]
    of_each = [("rows=1", "ok"), ("rows=512", "ok"), ("rows=8192", "out_of_memory"), ("rows=61", "ok")]
    assert found == [*of_each, *of_each]
    assert "it needs 939524096 bytes, and the device has" in rows[2]["problem"]

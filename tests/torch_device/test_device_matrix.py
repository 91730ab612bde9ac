"""All cases with steps in all precisions that they declare, on a device that is not the CPU, on 1 rank and on 2."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from device_matrix import NOT_ON_CPU
from nova_machine import HERE, NovaMachine, made_once

from flagperf.kinds import KINDS
from flagperf.metrics.registry import vocabulary
from flagperf.spec.manifest_reading import read_manifest
from flagperf_cases import flagperf_cases

pytestmark = pytest.mark.run

MANIFESTS = [read_manifest(case.manifest, vocabulary()) for case in flagperf_cases()]
RUNS = [
    f"{manifest.name} {precision}"
    for manifest in MANIFESTS
    if KINDS[manifest.kind].has_steps
    for precision in manifest.precisions
]
TOLERANCE = {"fp32": 2e-6, "tf32": 2e-3}
"""Relative. Some operators have another formula on devices than on the CPU (silu's gradient), equal but for rounding,
which in half precision is coarse."""
HALF_TOLERANCE = 2e-3

WAITS = {"distilbert": 1, "glm": 0, "llama2_7b_finetune": 1, "llama2_70b": 0, "aquila_33b": 0}
"""Of the host for the device in a step. Those of distilbert and llama2_7b_finetune are in transformers, which looks
whether a mask is needed. Where float16 is scaled, one more decides whether to step."""
SCALED = {"distilbert amp-fp16", "glm fp16", "llama2_7b_finetune fp16", "llama2_7b_finetune amp-fp16"}
BUCKETS = 2
"""Once, in the second step of DistributedDataParallel: it tells the other ranks in which order gradients came."""


@pytest.fixture(scope="module")
def outcomes(nova_site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Any]]:
    """By world size and rank. float64 is not needed by any of them."""
    machine = NovaMachine(nova_site, tmp_path_factory.mktemp("matrix"))

    def run_all(out: Path) -> None:
        out.write_text(json.dumps([_run_ranks(machine, world_size) for world_size in (1, 2)]))

    return dict(enumerate(json.loads(made_once(tmp_path_factory, "matrix.json", run_all).read_text()), 1))


def _run_ranks(machine: NovaMachine, world_size: int) -> list[Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    files = [machine.folder / f"{rank}-of-{world_size}.json" for rank in range(world_size)]
    ranks = [
        machine.start(
            [sys.executable, str(HERE / "device_matrix.py"), str(file)],
            RANK=str(rank), LOCAL_RANK=str(rank), FLAGPERF_TEST_DEVICE="float64=no", **shared,
        )
        for rank, file in enumerate(files)
    ]  # fmt: skip
    for rank in ranks:
        _, stderr = rank.communicate(timeout=600)
        assert rank.returncode == 0, stderr[-3000:]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("run", RUNS)
def test_losses_and_results_are_those_of_the_cpu(outcomes: dict[int, list[Any]], run: str, world_size: int) -> None:
    case, precision = run.split()
    tolerance = TOLERANCE.get(precision, HALF_TOLERANCE)
    expected_run = f"{case} fp32" if precision in NOT_ON_CPU else run
    for rank in outcomes[world_size]:
        found, expected = rank["nova"][run], rank["cpu"][expected_run]
        assert "error" not in found, found
        assert found["losses"] == pytest.approx(expected["losses"], rel=tolerance)
        for name, value in expected["reported"].items():
            if "loss" in name or expected_run == run:  # an answer may tip over where the precision is another
                assert found["reported"][name] == pytest.approx(value, rel=tolerance), name


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("run", RUNS)
def test_the_host_waits_inside_a_step_only_where_it_is_known_to(
    outcomes: dict[int, list[Any]], run: str, world_size: int
) -> None:
    case = run.split()[0]
    expected = WAITS[case] + (run in SCALED)
    has_buckets = world_size > 1 and case in ("distilbert", "glm", "llama2_7b_finetune")
    for rank in outcomes[world_size]:
        waits = rank["nova"][run]["waits"]
        assert waits[1] == expected + (BUCKETS if has_buckets else 0)
        assert set(waits[:1] + waits[2:]) == {expected}


def test_a_model_on_two_ranks_learns_on_both(outcomes: dict[int, list[Any]]) -> None:
    """Gradients are exchanged: what each rank reports of the whole model is the same."""
    first, second = (rank["nova"] for rank in outcomes[2])
    assert {run: first[run]["reported"] for run in first} == {run: second[run]["reported"] for run in second}

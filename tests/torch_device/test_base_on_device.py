"""The base cases on two cards of a type that nobody knows, by the real command in profile tiny."""

from __future__ import annotations

from typing import Any

import pytest
from e2e_flagperf import bundle_of, metric, read_run
from nova_machine import MIB, NovaMachine

from flagperf.testing.torch_device.memory import CONTEXT_BYTES

pytestmark = [pytest.mark.run, pytest.mark.full]

SHORT = ("--set", "measure.seconds=0.02", "--set", "measure.min_samples=10")
CARD_BYTES = 1 << 30


def run_on_two(nova: NovaMachine, case: str, *settings: str, **variables: str) -> dict[str, Any]:
    done = nova.flagperf("run", case, "--vendor", "nova", "--devices", "2", *settings, **variables)
    assert done.code == 0, done.stderr
    assert nova.flagperf("runs", "verify", "latest").code == 0
    return read_run(bundle_of(nova.folder))


def outcomes(run: dict[str, Any], *labels: str) -> set[tuple[str, ...]]:
    return {(*(row["labels"][name] for name in labels), row.get("status", "ok")) for row in run["rows"]}


def problems(run: dict[str, Any]) -> set[str]:
    return {row["problem"] for row in run["rows"] if "problem" in row}


PRODUCTS = ("--set", "gemm.headline=64x96x512", "--set", "gemm.shapes=[]")


def test_products_of_each_card_alone_and_of_both_in_every_precision(nova: NovaMachine) -> None:
    """TF32 too, which the device rounds to as cards do."""
    run = run_on_two(nova, "gemm", *SHORT, *PRODUCTS)
    names = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
    expected = {(name, devices, "ok") for name in names for devices in ("single", "all")}
    assert outcomes(run, "precision", "devices") == expected, problems(run)
    assert {row["clock"] for row in run["rows"]} == {"device_events"}
    probes = {row["labels"]["precision"]: row["facts"].get("probe") for row in run["rows"]}
    assert (probes["fp32"], probes["tf32"]) == ("exact", "rounded")
    switches = {row["labels"]["precision"]: row["facts"]["float32_matmul_precision"] for row in run["rows"]}
    assert {name for name, switch in switches.items() if switch == "high"} == {"tf32"}
    for name in ("fp64", "fp32", "fp8", "int8"):
        rated = metric(run, f"gemm_{name}")["inputs"]
        assert rated["peak_row"] == name and 0 < rated["share"] < 1
    for name in ("gemm_fp32", "gemm_fp32_all"):
        assert metric(run, name)["value"] > 0
        assert set(metric(run, name)["inputs"]["per_device"]) == {"0/NOVA-00", "0/NOVA-11"}


def test_a_card_without_float64_has_the_other_products(nova: NovaMachine) -> None:
    settings = (*SHORT, *PRODUCTS, "--set", 'gemm.precisions=["fp64", "fp32"]')
    run = run_on_two(nova, "gemm", *settings, FLAGPERF_TEST_DEVICE="float64=no")
    assert outcomes(run, "precision") == {("fp64", "unsupported"), ("fp32", "ok")}, problems(run)
    assert metric(run, "gemm_fp64")["reason"] == "unsupported"


def test_memory_bandwidth_of_each_card_alone_and_of_both(nova: NovaMachine) -> None:
    run = run_on_two(nova, "memory_bandwidth", *SHORT, "--set", "memory_bandwidth.headline=4MiB")
    patterns = ("copy", "read", "write", "triad")
    expected = {(name, devices, "ok") for name in patterns for devices in ("single", "all")}
    assert outcomes(run, "pattern", "devices") == expected
    assert {row["clock"] for row in run["rows"]} == {"device_events"}
    copy = metric(run, "memory_copy_all")
    assert copy["value"] > 0 and set(copy["inputs"]["per_device"]) == {"0/NOVA-00", "0/NOVA-11"}


def test_memory_capacity_is_what_the_card_has_beside_the_process(nova: NovaMachine) -> None:
    """Both are whole MiB, so that the last chunk fills it."""
    run = run_on_two(nova, "memory_capacity", "--profile", "standard")
    usable = CARD_BYTES - CONTEXT_BYTES
    assert outcomes(run, "devices", "until") == {("single", "out_of_memory", "ok"), ("all", "out_of_memory", "ok")}
    for name in ("usable_memory", "usable_memory_all"):
        assert metric(run, name)["value"] == usable / (1024 * MIB)
    assert metric(run, "usable_share")["value"] == usable / CARD_BYTES


def test_transfers_by_direction_and_memory(nova: NovaMachine) -> None:
    run = run_on_two(nova, "host_to_device", *SHORT)
    rows = {(way, memory) for way in ("h2d", "d2h", "both") for memory in ("pinned", "pageable")}
    expected = {(*row, "link", devices, "ok") for row in rows for devices in ("single", "all")}
    assert outcomes(run, "direction", "memory", "path", "devices") == expected, problems(run)
    each, total = metric(run, "h2d_pinned_all"), metric(run, "h2d_pinned_sum")
    assert total["value"] == pytest.approx(sum(each["inputs"]["per_device"].values()))
    assert metric(run, "same_memory_copy")["reason"] == "not_measured"


def test_without_pinned_memory_only_the_other_rows_are_measured(nova: NovaMachine) -> None:
    settings = (*SHORT, "--set", "host_to_device.sizes=[]")
    run = run_on_two(nova, "host_to_device", *settings, FLAGPERF_TEST_DEVICE="pinned=no")
    assert outcomes(run, "memory") == {("pinned", "unsupported"), ("pageable", "ok")}
    assert all("cannot pin memory for the device" in problem for problem in problems(run))
    assert metric(run, "h2d_pinned")["reason"] == "unsupported"

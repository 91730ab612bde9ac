"""The published configuration, the vendors' own, and the layouts that fit a number of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness

from flagperf.errors import BadInput
from flagperf.plan.settings import find_tuning, fit_layout, parallel_layer, parse_parallel
from flagperf.spec.job import RunSpec
from flagperf.spec.values import Layer, resolve
from flagperf_cases.decoder.layout import bubble, check_layout, layout_of, shape_of

CASE = CaseHarness("llama2_70b")

PLUGINS = Path(__file__).parents[3] / "plugins"


def test_standard_is_the_published_model() -> None:
    found = CASE.manifest().values
    shape = shape_of(found["model"])
    assert (shape.parameters, shape.matmul_parameters) == (68_976_648_192, 68_713_185_280)
    training = found["training"]
    assert training["max_samples"] // (training["batch_size"] * training["accumulate"]) == 554


@pytest.mark.parametrize(
    ("vendor", "model", "nodes", "layout", "precision"),
    [
        ("nvidia", "NVIDIA H800", 4, (8, 4, 1), "amp-bf16"),
        ("metax", "C500", 4, (4, 8, 1), "amp-bf16"),
        ("kunlun", "R300", 10, (8, 10, 1), "fp32"),
    ],
)
def test_published_rows_have_their_layout(
    vendor: str, model: str, nodes: int, layout: tuple[int, int, int], precision: str
) -> None:
    found, folder = CASE.manifest(), PLUGINS / vendor / f"src/flagperf_{vendor}/tuning"
    tuning = find_tuning(folder, "llama2_70b", model, nodes, 8, "standard")
    assert tuning is not None
    layers = [Layer("standard", found.profiles["standard"].values), Layer("tuning", tuning.values, source="vendor")]
    config = fit_layout(resolve(found, layers), RunSpec("llama2_70b", nodes=nodes, devices=8)).values
    parallel = config["parallel"]
    assert (parallel["tp"], parallel["pp"], parallel["dp"]) == layout
    assert config["precision"] == precision
    check_layout(shape_of(config["model"]), layout_of(parallel), config["training"]["accumulate"])


@pytest.mark.parametrize(
    ("devices", "layout"), [(1, (1, 1, 1)), (2, (2, 1, 1)), (3, (1, 1, 3)), (4, (2, 2, 1)), (8, (2, 2, 2))]
)
def test_tiny_fits_its_layout_to_the_devices(devices: int, layout: tuple[int, int, int]) -> None:
    parallel = CASE.values(devices=devices)["parallel"]
    assert (parallel["tp"], parallel["pp"], parallel["dp"]) == layout


@pytest.mark.parametrize(
    ("nodes", "devices", "asked", "layout"),
    [(2, 3, "", (1, 2, 3)), (2, 1, "", (1, 2, 1)), (2, 4, "TP4", (4, 1, 2)), (2, 4, "TP8", (8, 1, 1))],
)
def test_tensor_parallel_groups_fill_nodes(nodes: int, devices: int, asked: str, layout: tuple[int, int, int]) -> None:
    found = CASE.manifest()
    layers = [Layer("tiny", found.profiles["tiny"].values), *([parallel_layer(asked, found)] if asked else [])]
    spec = RunSpec("llama2_70b", nodes=nodes, devices=devices)
    parallel = fit_layout(resolve(found, layers), spec).values["parallel"]
    assert (parallel["tp"], parallel["pp"], parallel["dp"]) == layout


def test_a_tensor_parallel_group_across_two_nodes_in_part_is_refused() -> None:
    found = CASE.manifest()
    layers = [Layer("tiny", found.profiles["tiny"].values), parallel_layer("TP2", found)]
    with pytest.raises(BadInput, match="tp=2 does not fit nodes of 3 devices"):
        fit_layout(resolve(found, layers), RunSpec("llama2_70b", nodes=2, devices=3))


def test_what_was_chosen_to_fit_is_no_change_of_the_configuration() -> None:
    found = CASE.manifest()
    layers = [Layer("tiny", found.profiles["tiny"].values), parallel_layer("TP2", found)]
    config = fit_layout(resolve(found, layers), RunSpec("llama2_70b", devices=4))
    assert config.layers["parallel.dp"] == "fits 4 devices"
    assert config.values["parallel"]["dp"] == 2
    assert config.deviations == {"parallel.tp": "--parallel", "parallel.pp": "--parallel"}


@pytest.mark.parametrize(
    ("parallel", "message"),
    [
        ("TP4PP8DP1", "the layout TP4PP8DP1 needs 32 devices, and --nodes 1 x --devices 4 is 4"),
        ("TP3", "the layout TP3PP1 needs a multiple of 3 devices"),
        ("TP2PP1DP1", "needs 2 devices"),
    ],
)
def test_layouts_that_do_not_fit_the_devices_are_refused(parallel: str, message: str) -> None:
    found = CASE.manifest()
    layers = [Layer("tiny", found.profiles["tiny"].values), parallel_layer(parallel, found)]
    with pytest.raises(BadInput, match=message):
        fit_layout(resolve(found, layers), RunSpec("llama2_70b", devices=4))


@pytest.mark.parametrize(("text", "layout"), [("TP4PP8DP1", (4, 8, 1)), ("tp2dp4", (2, 1, 4)), ("PP2", (1, 2, 0))])
def test_layouts_are_read(text: str, layout: tuple[int, int, int]) -> None:
    assert parse_parallel(text) == layout


@pytest.mark.parametrize("text", ["", "4x8", "TP0PP2", "TP2 PP2", "PP2TP2", "TP2PP2DP0", "TP" + "9" * 5000])
def test_other_texts_are_no_layout(text: str) -> None:
    with pytest.raises(BadInput, match="TP4PP8DP1"):
        parse_parallel(text)


@pytest.mark.parametrize(
    ("pp", "micro_batches", "share"), [(4, 44, 0.064), (8, 44, 0.137), (8, 1024, 0.007), (1, 44, 0.0)]
)
def test_bubble_is_that_of_1f1b(pp: int, micro_batches: int, share: float) -> None:
    assert bubble(pp, micro_batches) == pytest.approx(share, abs=5e-4)


def _cells(reference: Any) -> tuple[str, str]:
    return reference.vendor, reference.parallel


def test_published_results_say_their_layout() -> None:
    found = [_cells(reference) for reference in CASE.manifest().references]
    assert len(found) == 10
    assert ("metax", "TP4PP8DP1") in found and ("kunlun", "TP8PP10DP1") in found

"""Every operator of the table: complete, right on the CPU, and a wrong implementation of each is found."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from case_harness import CaseHarness, SmallCache

from flagperf.api import OperatorLibrary
from flagperf.errors import Unsupported
from flagperf.events import RowMeasured
from flagperf.worker import WrongOutput
from flagperf_cases.operators.case import Implementation, Measured, Operands, make_implementation, noticing_fallbacks
from flagperf_cases.operators.data import Row, contents, rows
from flagperf_cases.operators.groups import OPERATORS, PUBLISHED, bind_torch
from flagperf_cases.operators.operator import SHAPE_CLASSES, Operand
from flagperf_cases.operators.tolerance import EXACT, Order, Rounding

HARNESS = CaseHarness("operators")
# fmt: off
NAMES = {
    "attention", "attention_decode", "conv1d", "conv2d", "embedding", "rms_norm", "add_rms_norm", "rope",
    "layer_norm", "cross_entropy_loss", "swiglu", "geglu", "index_select", "gather", "scatter", "index_add", "sort",
    "topk", "cumsum", "multinomial", "moe_router", "moe_permute", "moe_grouped_mm", "int8_mm", "fp8_mm",
    "w4a16_linear", "adamw_step", "rand", "normal", "transpose_copy", "cat", "strided_copy", "batch_norm",
    "max_pool2d", "interpolate",
}
# fmt: on
"""What the published results lack."""
EAGER, COMPILED = (make_implementation(name, None) for name in ("eager", "compile"))  # type: ignore[arg-type]


@pytest.fixture(autouse=True, scope="module")
def bound() -> None:
    bind_torch()
    torch.set_num_threads(1)


def tiny(**changes: Any) -> dict[str, Any]:
    prefixed = {f"operators__{key}": value for key, value in changes.items()}
    return dict(HARNESS.values(**prefixed)["operators"])


def output_of(row: Row, implementation: Implementation = EAGER) -> tuple[Measured, Any]:
    measured = Measured(row, Operands(row, "cpu"), implementation)
    call = measured.call()
    with measured.within():
        return measured, call()


def one(name: str, dtype: str = "fp32", direction: str = "forward") -> Row:
    return next(rows(tiny(only=[name], dtypes=[dtype], directions=[direction])))


# --- the table ------------------------------------------------------------------------------------------------------


def test_all_published_operators_and_those_that_were_missing_are_there() -> None:
    assert len(PUBLISHED) == 52 and set(PUBLISHED) | NAMES <= set(OPERATORS)
    for name in PUBLISHED:
        assert "published" in OPERATORS[name].shapes, name


@pytest.mark.parametrize(
    ("name", "dtype", "num_bytes"),
    [  # least traffic of the published shapes
        ("abs", "fp16", 2 * 2 * 2**30),
        ("add", "fp32", 3 * 4 * 2**30),
        ("eq", "fp32", 9 * 2**30),
        ("isnan", "fp16", 3 * 2**30),
        ("sum", "fp32", 4 * 2**30 + 4),
        ("all", "int64", 8 * 2**30 + 1),
        ("triu", "fp32", 4 * (51200 * 51201 // 2 + 51200**2)),
        ("bitwise_not", "int16", 2 * 2 * 2**30),
    ],
)
def test_least_traffic_of_published_shapes(name: str, dtype: str, num_bytes: int) -> None:
    (sizes,) = OPERATORS[name].shapes["published"]
    assert OPERATORS[name].work(sizes, dtype, "forward") == (0, num_bytes)


def test_work_of_products_attention_and_convolutions() -> None:
    assert OPERATORS["mm"].work({"m": 2, "n": 3, "k": 5}, "bf16", "forward") == (60, 2 * (10 + 15 + 6))
    assert OPERATORS["mm"].work({"m": 2, "n": 3, "k": 5}, "bf16", "backward")[0] == 120
    sizes = {"batch": 1, "heads": 4, "kv_heads": 2, "length": 8, "width": 16}
    assert OPERATORS["attention"].work(sizes, "fp16", "forward")[0] == 4 * 4 * 8 * 8 * 16
    assert OPERATORS["attention"].work({**sizes, "causal": True}, "fp16", "backward")[0] == 2.5 * 2 * 4 * 8 * 8 * 16
    image = {"batch": 1, "inputs": 4, "outputs": 6, "size": 5, "kernel": 3, "groups": 2}
    assert OPERATORS["conv2d"].work(image, "fp32", "forward")[0] == 2 * 6 * 9 * 2 * 9
    assert OPERATORS["adamw_step"].work({"parameters": 100, "tensors": 2}, "fp32", "forward")[1] == 2800


def test_memory_of_a_row_is_known_before_it_is_made() -> None:
    (sizes,) = OPERATORS["add"].shapes["published"]
    assert OPERATORS["add"].memory_bytes(sizes, "fp32", "forward") == 12 * 2**30
    for row in rows(tiny()):
        operands = Operands(row, "cpu")
        held = sum(each.untyped_storage().nbytes() for each in operands.tensors)
        assert row.memory_bytes >= held, row.labels


def test_every_shape_of_every_operator_has_consistent_sizes() -> None:
    for operator in OPERATORS.values():
        assert set(operator.shapes) <= set(SHAPE_CLASSES) and operator.shapes["tiny"]
        for shapes in operator.shapes.values():
            for sizes in shapes:
                for direction in operator.directions:
                    flops, num_bytes = operator.work(sizes, operator.dtypes[0], direction)
                    assert num_bytes > 0 and flops >= 0 and bool(flops) == (operator.figure == "TFLOPS")


# --- right and wrong outputs ----------------------------------------------------------------------------------------

ROWS = list(rows(tiny()))


def test_every_operator_is_right_on_the_cpu_in_every_dtype_and_direction() -> None:
    for row in ROWS:
        measured, output = output_of(row)
        facts = measured.check(output)
        assert facts["tolerance"] and facts["checked"], row.labels


def damaged(output: Any) -> Any:
    """One element is another number: by one for whole numbers, the largest by a quarter at least."""
    first, *rest = (output,) if isinstance(output, torch.Tensor) else output
    changed = first.contiguous().clone()
    place = int(changed.abs().flatten().argmax()) if changed.dtype != torch.bool else 0
    flat = changed.view(-1)
    flat[place] = ~flat[place] if changed.dtype == torch.bool else flat[place] + max(1, 0.25 * abs(float(flat[place])))
    return (changed, *rest)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_single_wrong_element_is_found_wherever_an_output_is_compared(dtype: str) -> None:
    for row in ROWS:
        if row.operator.is_random or row.dtype != dtype:
            continue
        measured, output = output_of(row)
        with pytest.raises(WrongOutput, match=r"differ|indices"):
            measured.check(damaged(output))
            pytest.fail(str(row.labels))


WRONG: dict[str, Callable[..., Any]] = {
    "sum": lambda x: x.flatten()[:-256].sum(),  # a tail that is left out
    "mm": lambda a, b: (a.to(torch.bfloat16) @ b.to(torch.bfloat16)).to(a.dtype),  # fp32 by 16 bits
    "softmax": lambda x: torch.softmax(x, 0),
    "attention": lambda q, k, v, causal=False: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, enable_gqa=q.shape[1] != k.shape[1]
    ),  # not causal
    "topk": lambda x, k: torch.topk(x, k, largest=False).indices,
    "sort": lambda x: torch.zeros_like(x, dtype=torch.int64),  # one index again and again
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.28),
    "native_dropout": lambda x: x / 0.7 * (torch.arange(x.shape[1]) % 10 > 2) * 1.02,
    "rand": lambda x: torch.rand_like(x) * 0.98,
    "normal": lambda x: torch.randn(x.shape[1]).repeat(x.shape[0], 1).cumsum(1) / 16,
    "multinomial": lambda weights: torch.randint(0, weights.shape[1] // 2, (weights.shape[0], 64)),
    "prod": lambda x: -x.prod(),
    "eq": lambda x, y: x <= y,
    "index_add": lambda x, index, source: x,
    "gather": lambda x, index: torch.gather(x, 0, index.flip(0)),
    "adamw_step": lambda *tensors: tensors[: len(tensors) // 5],  # no step at all
    "rms_norm": lambda x, weight: torch.nn.functional.layer_norm(x, weight.shape, weight),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_implementation_is_found(name: str) -> None:
    wrong = Implementation("wrong", lambda operator: WRONG[operator.name])
    measured, output = output_of(one(name), wrong)
    with pytest.raises(WrongOutput):
        measured.check(output)


def test_a_wrong_gradient_is_found() -> None:
    wrong = Implementation("wrong", lambda operator: lambda x: operator.call(x.detach()) + 0 * x)
    measured, output = output_of(one("tanh", direction="backward"), wrong)
    with pytest.raises(WrongOutput):
        measured.check(output)


def test_another_shape_dtype_or_number_of_outputs_is_found() -> None:
    measured, output = output_of(one("abs"))
    for other, words in ((output[1:], "not"), (output.double(), "not"), ((output, output), "2 outputs")):
        with pytest.raises(WrongOutput, match=words):
            measured.check(other)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_numbers_that_repeat_neither_overflow_in_sums_nor_in_products(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """As 2**30 of them would, of which 2**24 are drawn."""
    monkeypatch.setattr("flagperf_cases.operators.draws.PERIOD", (1 << 14) + 27)
    for name, largest in (("sum", 5e3), ("prod", 1e4)):
        row = Row(OPERATORS[name], {"n": 1 << 20}, dtype, "forward", "warm")
        measured, output = output_of(row)
        assert 0 < abs(float(output)) < largest and measured.check(output), name


def test_large_outputs_are_checked_in_parts_with_the_last_and_the_wrong_ones_among_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flagperf_cases.operators.case.CHECKED_ELEMENTS", 2000)
    monkeypatch.setattr("flagperf_cases.operators.case.MIN_PARTS", 2)
    heads = {"batch": 1, "heads": 16, "kv_heads": 8, "length": 16, "width": 16}
    attention = Row(OPERATORS["attention"], heads, "fp32", "forward", "warm")
    for row in (*map(one, ("exp", "add", "mm", "softmax")), attention):
        measured, output = output_of(row)
        some, whole = (int(word) for word in measured.check(output)["checked"].split()[::2][:2])
        assert some < whole, row.labels
    measured, output = output_of(one("exp"))
    output[-1, -1] += 1
    with pytest.raises(WrongOutput):
        measured.check(output)


# --- rules, by numbers that a person can check ----------------------------------------------------------------------


def error(rule: Any, found: float, expected: float, terms: int = 1) -> float:
    return float(rule.judge(torch.tensor([found]), torch.tensor([expected]).double(), [], terms).error)


def test_rounding_counts_units_of_the_output_and_of_sums() -> None:
    eps = torch.finfo(torch.float32).eps
    assert error(Rounding(ulps=2, inner=0), 1 + 2 * eps, 1.0) == pytest.approx(1)
    assert error(Rounding(ulps=2, inner=0), 1 + 4 * eps, 1.0) == pytest.approx(2)
    # 2 + 8 * sqrt(100) units for sums of 100 numbers
    assert error(Rounding(ulps=2, inner=0), 1 + 82 * eps, 1.0, terms=100) == pytest.approx(1)


def test_infinities_and_nan_have_to_be_where_they_belong() -> None:
    rule = Rounding()
    assert error(rule, math.inf, math.inf) == 0 and error(rule, math.nan, math.nan) == 0
    for found, expected in ((math.nan, 1.0), (math.inf, 1.0), (1.0, math.inf), (-math.inf, math.inf), (0.0, math.nan)):
        assert error(rule, found, expected) > 1, (found, expected)
    assert error(EXACT, math.nan, math.nan) == 0 and error(EXACT, math.nan, 1.0) > 0


def test_equal_numbers_may_be_sorted_in_any_order() -> None:
    source = [torch.tensor([[3.0, 1.0, 3.0]])]
    right = torch.tensor([[0, 2, 1]])
    for found, is_right in (([2, 0, 1], True), ([0, 0, 1], False), ([0, 1, 2], False), ([0, 2, 7], False)):
        judged = Order().judge(torch.tensor([found]), right, source, 1)
        assert bool(judged.problem) != is_right, found


# --- what else a row says -------------------------------------------------------------------------------------------


def test_a_fallback_to_the_host_is_noticed() -> None:
    import warnings

    found: list[str] = []
    with noticing_fallbacks(found):
        warnings.warn("The operator 'aten::relu' will fall back to run on the CPU.", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    assert found == ["The operator 'aten::relu' will fall back to run on the CPU."]
    measured, output = output_of(one("relu"))
    measured.fallbacks += found
    with pytest.raises(Unsupported, match="falls back to the host"):
        measured.check(output)


class Sticky(OperatorLibrary):
    """Stays enabled."""

    name = "sticky"
    library: Any = None

    @contextlib.contextmanager
    def enable(self) -> Iterator[None]:
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("relu", lambda x: x.clamp(min=0), "CPU")
        yield


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_library_that_stays_enabled_is_refused_before_anything_is_measured() -> None:
    sticky = Sticky()
    try:
        with pytest.raises(Unsupported, match="library sticky still replaces operators of torch"):
            make_implementation("sticky", SimpleNamespace(operator_library=lambda name: sticky))  # type: ignore[arg-type]
    finally:
        sticky.library._destroy()


@pytest.mark.full
def test_a_compiled_backward_can_be_called_again_and_again() -> None:
    measured = Measured(one("silu", direction="backward"), Operands(one("silu"), "cpu"), COMPILED)
    call = measured.call()
    call()
    assert measured.check(call())["checked"]


def test_the_case_measures_what_is_asked_for_and_restores_what_an_operator_changes() -> None:
    values = HARNESS.quick(operators__only=["adamw_step", "relu"], operators__caches=["cold", "warm"])
    found = [event for event in HARNESS.run(values, backend=SmallCache()) if isinstance(event, RowMeasured)]
    assert [(row.labels["operator"], row.labels["direction"], row.labels["cache"], row.status) for row in found] == [
        ("relu", "forward", "cold", "ok"),
        ("relu", "forward", "warm", "ok"),
        ("relu", "backward", "cold", "ok"),
        ("relu", "backward", "warm", "ok"),
        ("adamw_step", "forward", "cold", "ok"),
        ("adamw_step", "forward", "warm", "ok"),
    ]
    assert all(row.timing and row.timing.calls == 1 for row in found if row.labels["cache"] == "cold")


def test_what_would_take_half_of_the_hosts_memory_is_out_of_memory_and_the_next_row_runs() -> None:
    values = HARNESS.quick(operators__only=["relu", "outer"], operators__directions=["forward"])
    found = [event for event in HARNESS.run(values, memory_bytes=1 << 19) if isinstance(event, RowMeasured)]
    by_name = {row.labels["operator"]: row for row in found}
    assert {name: row.status for name, row in by_name.items()} == {"relu": "out_of_memory", "outer": "ok"}
    assert "more than half of the host's" in by_name["relu"].problem


# --- bad input, listing ---------------------------------------------------------------------------------------------


def test_the_listing_has_every_operator_with_its_shapes() -> None:
    tables = contents()
    assert [row["OPERATOR"] for row in tables["Operators"]] == list(OPERATORS)
    assert {row["OPERATOR"] for row in tables["Shapes"]} == set(OPERATORS)
    (row,) = [row for row in tables["Shapes"] if (row["OPERATOR"], row["CLASS"]) == ("mm", "published")]
    assert row["SHAPES"] == "m=8192 n=8192 k=8192"
    assert Operand((2, 3), layout="broadcast").num_bytes("fp32") == 12


def test_every_published_row_is_one_that_profile_standard_measures() -> None:
    planned = [row.labels for row in rows(HARNESS.values("standard")["operators"])]
    others = {"library": ("eager", "flaggems"), "devices": ("single",)}
    tables = HARNESS.manifest().published_rows
    assert sum(len(table.values) for table in tables) > 150
    for table in tables:
        assert all(table.where[name] in known for name, known in others.items())
        for *texts, _value in table.values:
            wanted = {**table.where, **dict(zip(table.by, texts, strict=True))}
            wanted = {name: text for name, text in wanted.items() if name not in others}
            assert any(wanted.items() <= labels.items() for labels in planned), wanted


def test_published_times_are_below_what_the_memory_of_that_card_can_do() -> None:
    """1555 GB/s: a time in another unit, or of another shape, would not be."""
    bandwidth = 1555e9
    planned = {tuple(row.labels[name] for name in ("operator", "shape", "dtype", "direction")): row
               for row in rows(HARNESS.values("standard")["operators"])}  # fmt: skip
    for table in HARNESS.manifest().published_rows:
        for name, shape, value in table.values:
            row = planned[name, shape, table.where["dtype"], "forward"]
            assert isinstance(value, float) and 1e-6 < value < 0.1
            _, num_bytes = row.operator.work(row.sizes, row.dtype, "forward")
            assert num_bytes / bandwidth <= value, (name, value)

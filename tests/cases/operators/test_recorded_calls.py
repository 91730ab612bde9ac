"""Recorded calls: what is timed, with which inputs, what it needs at least, and how its output is checked."""

import pytest
import torch
from torch.nn.functional import cross_entropy, embedding, scaled_dot_product_attention

from flagperf.api import OperatorCall, RecordedRanks, RecordedTensor, TensorArgument, ValueRange
from flagperf.worker.operator_recorder import OperatorRecorder
from flagperf_cases.operators.recorded_calls import (
    describe,
    find_operator,
    held_bytes,
    make_arguments,
    sort_out,
    why_not,
)
from flagperf_cases.operators.replay import prepare_work


def record(function):
    recorder = OperatorRecorder("cpu")
    with recorder:
        function()
    found = recorder.operators(0, 1, 1, None)
    return RecordedRanks([0], 1, found.tensors, found.calls)


def the_call(part, operator):
    (call,) = [call for call in part.calls if call.operator == operator]
    return call


def one(operator, *shapes, dtype="float32", **more):
    """A part with one call of contiguous tensors."""
    tensors = [RecordedTensor(shape, torch.empty(shape, device="meta").stride(), dtype) for shape in shapes]
    call = OperatorCall(operator, 1, [TensorArgument(index) for index in range(len(tensors))], **more)
    return RecordedRanks([0], 1, tensors, [call])


def work_of(part, number=0, seed=0):
    return prepare_work(part.calls[number], part, "cpu", seed)


# --- which are timed ------------------------------------------------------------------------------------------------


def test_views_and_allocations_are_counted_and_not_timed():
    rows = torch.randn(4, 6)

    def step():
        for _ in range(2):
            rows.t().reshape(3, 8).view(-1)
        torch.empty_like(rows).zero_()

    timed, others = sort_out(record(step))
    assert [call.operator for call in timed] == ["aten::clone", "aten::zero_"]
    assert {(each.operator, each.why, each.count) for each in others} == {
        ("aten::t", "view", 2),
        ("aten::_unsafe_view", "view", 2),
        ("aten::view", "view", 2),
        ("aten::empty_like", "allocation", 1),
    }


@pytest.mark.parametrize(
    ("operator", "more", "why"),
    [
        ("aten::no_such_operator", {}, "missing"),
        ("npu::npu_rms_norm", {}, "missing"),
        ("aten::relu.no_such_overload", {}, "missing"),
        ("load_library", {}, "missing"),
        ("aten::__class__", {}, "missing"),
        ("c10d::allreduce_", {"obstacle": "collective"}, "collective"),
        ("aten::relu", {"obstacle": "a tensor of layout sparse_coo"}, "unwritten"),
        ("aten::set_.source_Tensor", {}, "refused"),
        ("aten::from_file", {}, "refused"),
        ("aten::relu", {}, None),
    ],
)
def test_what_cannot_be_replayed_says_why(operator, more, why):
    part = one(operator, (3,), **more)
    assert why_not(part.calls[0], part.tensors) == why


def test_what_only_the_host_did_is_not_the_devices():
    tensors = [RecordedTensor((3,), (1,), "float32", "host"), RecordedTensor((3,), (1,), "float32", "device")]
    on_host = OperatorCall("aten::add_.Tensor", 1, [TensorArgument(0), 1])
    to_device = OperatorCall("aten::copy_", 1, [TensorArgument(1), TensorArgument(0)])
    assert (why_not(on_host, tensors), why_not(to_device, tensors)) == ("host", None)


def test_a_call_is_described_in_few_words():
    rows = torch.randn(4, 6, dtype=torch.bfloat16)
    part = record(lambda: torch._foreach_add_([rows[0], rows[1], rows.t()], 0.1))
    (text,) = [describe(call, part) for call in part.calls if call.operator.startswith("aten::_foreach_add_")]
    assert text == "[2x bf16[6], bf16[6,4] stride (1,6)], 0.1"


# --- inputs ---------------------------------------------------------------------------------------------------------


def test_inputs_have_the_recorded_shapes_strides_and_types_and_the_same_values_every_time():
    rows = torch.randn(4, 6, dtype=torch.float16)
    part = record(lambda: torch.add(rows.t(), rows[0, 0].expand(6, 4)))
    call = the_call(part, "aten::add.Tensor")
    (first, second), _ = make_arguments(call, part, "cpu", seed=3)
    assert (first.shape, first.stride(), first.dtype) == ((6, 4), (1, 6), torch.float16)
    assert second.stride() == (0, 0)
    again, _ = make_arguments(call, part, "cpu", seed=3)
    assert torch.equal(first, again[0])
    assert not torch.equal(first, make_arguments(call, part, "cpu", seed=4)[0][0])


def test_indices_are_in_range_and_ignored_ones_do_no_harm():
    table = torch.randn(100, 8)

    def step():
        embedding(torch.tensor([3, 99, 98]), table)
        cross_entropy(table, torch.randint(0, 8, (100,)).index_fill_(0, torch.tensor([5]), -100))
        table.gather(1, torch.tensor([[7]]))

    part = record(step)
    for call in sort_out(part)[0]:
        work = prepare_work(call, part, "cpu", seed=0)
        work.check(work.call())
    (_, ids), _ = make_arguments(the_call(part, "aten::embedding"), part, "cpu", 0)
    assert int(ids.min()) >= 3 and int(ids.max()) <= 99


def test_sorted_values_stay_sorted_and_masks_keep_their_share():
    part = one(
        "aten::bucketize.Tensor", (1000,), (50,), dtype="int64", ranges={"1": ValueRange(10, 400, is_sorted=True)}
    )
    (_, edges), _ = make_arguments(part.calls[0], part, "cpu", 0)
    assert (int(edges[0]), int(edges[-1])) == (10, 400) and bool((edges[1:] >= edges[:-1]).all())
    part = one("aten::nonzero", (10_000,), dtype="bool", ranges={"0": ValueRange(0, 1, share=0.1)})
    (mask,), _ = make_arguments(part.calls[0], part, "cpu", 0)
    assert 800 < int(mask.sum()) < 1200


def test_roots_get_positive_values():
    work = work_of(one("aten::sqrt", (1000,)))
    assert bool(work.call().isfinite().all())


# --- work and check -------------------------------------------------------------------------------------------------


def test_products_have_flops_and_bytes():
    work = work_of(one("aten::mm", (4, 6), (6, 8)))
    assert (work.flops, work.bytes) == (2 * 4 * 6 * 8, 4 * (4 * 6 + 6 * 8 + 4 * 8))
    with torch.inference_mode():
        part = record(lambda: torch.nn.functional.linear(torch.randn(5, 6), torch.randn(8, 6), torch.randn(8)))
    assert prepare_work(the_call(part, "aten::linear"), part, "cpu", 0).flops == 2 * 5 * 6 * 8
    part = record(lambda: torch.nn.functional.conv1d(torch.randn(2, 3, 10), torch.randn(4, 3, 3)))
    assert prepare_work(the_call(part, "aten::convolution"), part, "cpu", 0).flops == 2 * 2 * 4 * 8 * 3 * 3


@pytest.mark.parametrize(
    ("function", "operator", "elements"),
    [
        (lambda: torch.randn(10).add_(torch.randn(10)), "aten::add_.Tensor", 30),
        (lambda: torch.randn(10).copy_(torch.randn(10)), "aten::copy_", 20),
        (lambda: torch.randn(10).mul(torch.randn(1).expand(10)), "aten::mul.Tensor", 21),
        (lambda: torch.ones_like(torch.randn(10)), "aten::ones_like", 10),
        (lambda: torch.add(torch.randn(10), 1.0, out=torch.empty(10)), "aten::add.out", 20),
        (lambda: torch.randn(100, 4).index_select(0, torch.tensor([1])), "aten::index_select", 4 + 2 + 4),
    ],
)
def test_bytes_are_what_is_read_and_written_at_least(function, operator, elements):
    part = record(function)
    assert prepare_work(the_call(part, operator), part, "cpu", 0).bytes == 4 * elements


def test_what_a_call_changes_is_restored_before_the_next_one():
    part = one("aten::mul_.Tensor", (5,), (5,))
    work = work_of(part)
    first = work.call().clone()
    work.before()
    assert torch.equal(work.call(), first)
    assert work_of(one("aten::zero_", (5,))).before is None, "it does not read what it writes"


def test_a_right_output_is_checked_against_the_hosts_and_a_wrong_one_refused():
    work = work_of(one("aten::relu", (5,)))
    facts = work.check(work.call())
    assert facts == {"check": "finite where the host's float64 is", "error": "0"}
    with pytest.raises(ValueError, match="1 of 5 elements are not finite"):
        work.check(torch.tensor([0.0, 1.0, torch.nan, 0.0, 0.0]))
    with pytest.raises(ValueError, match="has shape"):
        work.check(torch.zeros(4))


def test_what_is_not_checked_says_why():
    part = record(lambda: torch.randn(5).bernoulli_(0.5))
    work = prepare_work(the_call(part, "aten::bernoulli_.float"), part, "cpu", 0)
    assert work.check(work.call()) == {"check": "none: random"}
    work = work_of(one("aten::relu", (5000, 1000)))
    assert work.check(work.call()) == {"check": "none: too large for the host"}


def test_attention_of_another_vendors_kernel_is_called_by_its_common_name():
    query, key, value = (torch.randn(2, heads, 8, 16, requires_grad=True) for heads in (4, 4, 4))

    def step():
        scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()

    part = record(step)
    forward = the_call(part, "aten::_scaled_dot_product_flash_attention_for_cpu")
    backward = the_call(part, "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    flops = 2 * 2 * (2 * 4 * 8 * 8 * 16) // 2
    for call, expected in ((forward, flops), (backward, flops * 5 // 2)):
        work = prepare_work(call, part, "cpu", 0)
        assert work.flops == expected
        assert work.check(work.call())["check"].startswith("finite where")
    elsewhere = one("aten::_scaled_dot_product_efficient_attention", (2, 4, 8, 16), (2, 2, 8, 16), (2, 2, 8, 16))
    elsewhere.calls[0].args.extend([None, True, 0.0, True])
    assert work_of(elsewhere).call().shape == (2, 4, 8, 16)


def test_only_torchs_own_operators_are_found():
    assert find_operator("aten::add.Tensor") is torch.ops.aten.add.Tensor
    assert find_operator("aten::mm") is torch.ops.aten.mm.default


def test_the_memory_of_the_arguments_is_known_before_they_are_made():
    tensors = [RecordedTensor((1000, 4), (1, 1000), "float16"), RecordedTensor((1 << 20, 8), (0, 1), "int64")]
    call = OperatorCall("aten::index_select", 1, [TensorArgument(0), 0, TensorArgument(1)])
    assert held_bytes(call, RecordedRanks([0], 1, tensors, [call])) == 2 * 4000 + 8 * 8, (
        "what is broadcast is held once"
    )

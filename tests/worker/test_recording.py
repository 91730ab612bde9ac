"""The recorder with torch's own operators."""

import msgspec
import pytest
import torch
from context_fakes import World, make_context
from torch.nn.functional import cross_entropy, embedding

from flagperf.api import RecordedTensor, ValueRange
from flagperf.api.operator_calls import RankOperators
from flagperf.events import StepFinished
from flagperf.worker.operator_recorder import OperatorRecorder
from flagperf.worker.step_timing import RecordedSteps


@pytest.fixture
def recorder():
    return OperatorRecorder("cpu")


def recorded(recorder):
    found = recorder.operators(0, 1, 1, None)
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
    return found


def call_of(recorder, operator):
    (call,) = [call for call in recorded(recorder).calls if call.operator == operator]
    return call


def test_forward_backward_and_optimizer_are_written_down(recorder):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    with recorder:
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    names = {call.operator for call in recorded(recorder).calls}
    assert {"aten::addmm", "aten::pow.Tensor_Scalar", "aten::mm", "aten::_foreach_lerp_.Scalar"} <= names


def test_equal_calls_are_one_entry_with_a_count(recorder):
    rows = torch.randn(5, 4)
    with recorder:
        for factor in (0.1, 0.2, 0.3):  # a learning rate
            rows.mul_(factor)
        rows.pow(2.0)
        rows.pow(3.0)
    assert call_of(recorder, "aten::mul_.Tensor").count == 3
    assert [call.count for call in recorded(recorder).calls] == [3, 1, 1]


def test_shapes_strides_types_and_arguments_are_kept(recorder):
    rows = torch.randn(4, 6, dtype=torch.bfloat16)
    with recorder:
        rows.t()[1:].sum(dim=[0], dtype=torch.float32)
        rows.masked_fill_(rows > 0, -torch.inf)
    found = recorded(recorder)
    call = call_of(recorder, "aten::sum.dim_IntList")
    assert found.tensors[call.args[0].index] == RecordedTensor((5, 4), (1, 6), "bfloat16", "device")
    assert call.args[1] == [0]
    assert (call.kwargs["dtype"].kind, call.kwargs["dtype"].value) == ("dtype", "float32")
    assert call_of(recorder, "aten::masked_fill_.Scalar").args[2].value == "-inf"


def test_ranges_of_integers_and_shares_of_masks_are_kept_and_nothing_else_of_a_tensor(recorder):
    table, ids = torch.randn(100, 8), torch.tensor([3, 7, 9])
    with recorder:
        embedding(ids, table)
        embedding(torch.tensor([50, 41, 60]), table)
        cross_entropy(table[:3], torch.tensor([-100, 2, 5]))
        table[:2, :2].where(torch.tensor([[True, False], [False, False]]), 0.0)
    assert call_of(recorder, "aten::embedding").ranges == {"1": ValueRange(3, 60, is_sorted=False)}
    assert call_of(recorder, "aten::nll_loss_forward").ranges == {"1": ValueRange(-100, 5, is_sorted=True)}
    assert call_of(recorder, "aten::where.self").ranges["0"].share == 0.25


def test_tensors_that_hold_nothing_are_left_out(recorder):
    with recorder:
        torch.ones(3, device="meta").exp()
    assert not recorded(recorder).calls


def test_labels_of_a_profiler_are_left_out(recorder):
    with recorder, torch.profiler.record_function("a name of mine"):
        torch.ones(3)
    assert "a name of mine" not in repr(recorded(recorder))


def test_what_cannot_be_written_down_is_an_obstacle(recorder):
    with recorder:
        torch.ones(2, 2, dtype=torch.int64).to_sparse().sum()
    obstacles = {call.operator: call.obstacle for call in recorded(recorder).calls if call.obstacle}
    assert any("layout sparse_coo" in words for words in obstacles.values())


def test_of_distributed_tensors_the_parts_of_this_rank_are_recorded_and_collectives_are_obstacles(recorder):
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        rows = distribute_tensor(torch.randn(4, 6), mesh, [Shard(1)])
        weights = distribute_tensor(torch.randn(6, 8), mesh, [Shard(0)])
        with recorder:
            product = rows @ weights
            assert product.placements == (Partial(),)
            product.redistribute(mesh, [Replicate()]).to_local().sum()
    finally:
        torch.distributed.destroy_process_group()
    found = recorded(recorder)
    shapes = [found.tensors[argument.index].shape for argument in call_of(recorder, "aten::mm").args]
    assert shapes == [(4, 3), (3, 8)], "half of the columns and rows"
    assert call_of(recorder, "_c10d_functional::all_reduce").obstacle == "collective"


def trained(record_steps):
    """The losses of the measured steps, the weights after the last step, and what was recorded."""
    world = World()
    context = make_context(world)
    context.device, context._recorded = "cpu", RecordedSteps(record_steps)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    with context.training(planned_steps=6):
        for _ in range(6):
            with context.step() as step:
                loss = model(torch.randn(4, 8)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                step.done(samples=4, loss=loss.detach())
    losses = [event.loss for event in world.of(StepFinished)]
    return losses, [weight.detach().clone() for weight in model.parameters()], context._recorded


def test_a_recording_changes_neither_the_losses_nor_what_is_learned():
    losses, weights, _ = trained(0)
    measured, same_weights, recorded = trained(2)
    assert measured == losses[:4]
    assert all(torch.equal(*pair) for pair in zip(weights, same_weights, strict=True))
    found = msgspec.json.decode(recorded.operators(0), type=RankOperators)
    assert (found.steps, found.problem) == (2, None)
    assert {call.count for call in found.calls if call.operator == "aten::addmm"} == {2}

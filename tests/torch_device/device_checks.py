"""What the device does, as functions that assert: `python device_checks.py OUT`, in a process that has the device.

Writes the traceback of each check that failed, by its name, as JSON. The device of a process cannot be taken away, so
none of this runs in pytest's own.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

MIB = 1 << 20


def raises(error: type[Exception], words: str, function: Any) -> None:
    try:
        function()
    except error as raised:
        assert words in str(raised), raised
        return
    raise AssertionError(f"{words!r} was not raised")


def check_a_tensor_of_the_host_among_a_cards_raises() -> None:
    import torch

    card = torch.ones(3, device="nova")
    raises(RuntimeError, "nova:0 and cpu in aten::add.Tensor", lambda: card + torch.ones(3))
    raises(RuntimeError, "nova:0 and cpu", lambda: card[torch.tensor([0])])
    assert (card + torch.tensor(1.0)).tolist() == [2.0, 2.0, 2.0], "a number is not a tensor of the host"


def check_pinned_memory_is_told_apart_also_by_its_views() -> None:
    import torch

    pageable = torch.ones(8)
    pinned = pageable.pin_memory()
    assert pinned.is_pinned() and pinned[2:].is_pinned() and torch.equal(pinned, pageable)
    assert not pageable.is_pinned() and not torch.ones(8, device="nova").is_pinned()
    raises(RuntimeError, "only memory of the host", lambda: torch.ones(8, device="nova").pin_memory())


def check_tensors_of_two_cards_do_not_meet() -> None:
    import torch

    raises(RuntimeError, "one card", lambda: torch.ones(2, device="nova:0") + torch.ones(2, device="nova:1"))


def check_factories_take_the_device_that_they_are_given() -> None:
    import torch

    made = [
        torch.tensor([1], device="nova:1"),
        torch.zeros(2, device="nova:1"),
        torch.as_tensor([1.0], device="nova:1"),
    ]
    assert {str(tensor.device) for tensor in made} == {"nova:1"}
    with torch.device("nova:1"):
        assert str(torch.tensor([1]).device) == "nova:1"
    assert str(torch.tensor([1]).device) == "cpu"


def check_gradients_on_the_second_card_are_the_cpus() -> None:
    import torch

    torch.manual_seed(0)
    on_host = torch.nn.Linear(4, 3)
    rows = torch.randn(5, 4)
    on_host(rows).square().sum().backward()
    on_card = torch.nn.Linear(4, 3).to("nova:1")
    on_card.load_state_dict(on_host.state_dict())
    on_card(rows.to("nova:1")).square().sum().backward()
    assert torch.equal(on_card.weight.grad.cpu(), on_host.weight.grad)


def check_moving_a_model_makes_new_parameters() -> None:
    """As torch does for this kind of device: an optimizer that holds the old ones trains nothing."""
    import torch

    model = torch.nn.Linear(2, 2)
    before = model.weight
    model.to("nova")
    assert model.weight is not before and isinstance(model.weight, torch.nn.Parameter)


def check_live_bytes_are_counted_once_and_until_the_last_view() -> None:
    import torch

    before = torch.nova.memory_allocated()
    block = torch.empty(8 * MIB, dtype=torch.uint8, device="nova")
    part = block[:4].view(2, 2)
    assert torch.nova.memory_allocated() - before == 8 * MIB
    del block
    assert torch.nova.memory_allocated() - before == 8 * MIB
    del part
    assert torch.nova.memory_allocated() == before


def check_what_is_freed_stays_reserved_until_the_cache_is_emptied() -> None:
    import os

    import torch
    from flagperf_nova.driver import used_bytes

    torch.nova.empty_cache()
    reserved = torch.nova.memory_reserved()
    used = used_bytes(os.environ["NOVA_MACHINE"], 0)
    block = torch.empty(16 * MIB, dtype=torch.uint8, device="nova")
    del block
    assert torch.nova.memory_reserved() - reserved == 16 * MIB
    assert used_bytes(os.environ["NOVA_MACHINE"], 0) - used == 16 * MIB, "the card sees what the allocator reserves"
    torch.nova.empty_cache()
    assert torch.nova.memory_reserved() == reserved
    assert used_bytes(os.environ["NOVA_MACHINE"], 0) == used


def check_more_than_the_card_has_is_out_of_memory_and_leaves_nothing() -> None:
    import torch

    before = torch.nova.memory_allocated()
    raises(torch.OutOfMemoryError, "out of memory", lambda: torch.empty(2 << 30, dtype=torch.uint8, device="nova"))
    assert torch.nova.memory_allocated() == before


def check_only_waits_of_the_host_are_counted() -> None:
    import torch

    card = torch.ones(4, device="nova")
    began = torch.nova.num_synchronizations()
    torch.ones(4).to("nova", non_blocking=True)
    card[card > 0] = 2.0  # one number: as masked_fill, which counts nothing
    total = (card @ card).sqrt()
    assert torch.nova.num_synchronizations() == began
    for wait in (total.item, lambda: bool(total > 0), card.cpu, card.nonzero, lambda: torch.ones(4).to("nova")):
        before = torch.nova.num_synchronizations()
        wait()
        assert torch.nova.num_synchronizations() == before + 1, wait
    assert total.item() == 4.0


def check_a_copy_that_is_not_waited_for_reads_memory_later() -> None:
    import torch

    reused = torch.ones(3)
    card = reused.to("nova", non_blocking=True)
    reused.fill_(7.0)
    assert card.tolist() == [7.0, 7.0, 7.0]


def check_a_copy_to_the_host_that_is_not_waited_for_is_not_there_yet() -> None:
    import torch

    host = torch.ones(3, device="nova").to("cpu", non_blocking=True)
    assert host.isnan().all()
    torch.nova.synchronize()
    assert host.tolist() == [1.0, 1.0, 1.0]


def check_queued_time_passes_only_when_it_is_waited_for() -> None:
    import time

    import torch

    began, ended = torch.nova.Event(enable_timing=True), torch.nova.Event(enable_timing=True)
    began.record()
    before = time.perf_counter()
    torch.nova.sleep(0.2)
    ended.record()
    assert not ended.query()
    raises(RuntimeError, "synchronise first", lambda: began.elapsed_time(ended))
    torch.nova.synchronize()
    assert time.perf_counter() - before >= 0.2
    assert began.elapsed_time(ended) >= 200


def check_float64_is_refused_where_the_card_has_none() -> None:
    import torch

    raises(TypeError, "nova doesn't support torch.float64", lambda: torch.ones(2, device="nova").double())


def check_the_first_matrix_product_may_take_longer() -> None:
    import torch

    from flagperf.testing.torch_device.options import Options
    from flagperf.testing.torch_device.queue import Queue

    queue = Queue(Options(first_seconds=5.0), 0)
    for name, expected in (("aten::add", 0), ("aten::mm", 5), ("aten::mm", 0)):
        before = queue.end_seconds()
        queue.add_operator(name)
        assert round(queue.end_seconds() - before) == expected, name
    assert torch.nova.is_available()


def check_autocast_computes_products_in_the_lower_precision() -> None:
    import torch

    layer, rows = torch.nn.Linear(4, 4).to("nova"), torch.ones(2, 4, device="nova")
    with torch.autocast("nova", torch.float16):
        assert layer(rows).dtype == torch.float16
        assert torch.nn.functional.mse_loss(layer(rows), rows).dtype == torch.float32
        assert torch.cat([layer(rows), rows]).dtype == torch.float32


def check_tf32_rounds_and_fp32_does_not() -> None:
    import torch
    from flagperf_nova.device import NovaBackend

    from flagperf.api import precision
    from flagperf.worker.__main__ import prove_precision

    backend = NovaBackend()
    ones = torch.ones((32, 32), device="nova")
    for name, product in {"tf32": 32.0, "fp32": 32.0078125}.items():
        backend.set_precision(precision(name))
        prove_precision(precision(name), "nova:0", "nova")
        assert torch.matmul(ones + 2**-12, ones)[0, 0].item() == product
    assert torch.get_float32_matmul_precision() == "highest"


def check_a_gradient_scaler_needs_no_float64() -> None:
    import torch

    from flagperf.worker.accelerator import GradientScaler

    weight = torch.nn.Parameter(torch.ones(2).to("nova"))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.5), GradientScaler("nova", init_scale=2.0**10)
    scaler.scale((weight * 3).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [-0.5, -0.5]


def check_collectives_of_the_host_raise() -> None:
    import torch

    torch.distributed.init_process_group("novacl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    card = torch.ones(2, device="nova")
    torch.distributed.all_reduce(card)
    assert card.tolist() == [1.0, 1.0]
    raises(
        RuntimeError,
        "No backend type associated with device type cpu",
        lambda: torch.distributed.all_reduce(torch.ones(2)),
    )
    torch.distributed.destroy_process_group()


def check_an_optimizer_of_the_weights_of_before_is_refused() -> None:
    import os

    import torch
    from flagperf_nova.device import NovaBackend

    from flagperf.api import precision
    from flagperf.worker.accelerator import make_accelerator

    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("novacl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    accelerator = make_accelerator(NovaBackend(), precision("amp-fp16"), 1, "nova:0")
    assert str(accelerator.device) == "nova:0" and accelerator.scaler is not None
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    raises(RuntimeError, "holds none of the model's weights", lambda: accelerator.prepare(model, optimizer))


def check_a_checkpoint_goes_through_the_cards_memory_once() -> None:
    import tempfile

    import torch
    from case_harness import CaseHarness
    from transformers import LlamaForCausalLM

    from flagperf_cases.llama2_7b_finetune.case import load_base, model_config

    values = CaseHarness("llama2_7b_finetune").settings().model
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(model_config(values)).save_pretrained(folder)
        torch.nova.reset_peak_memory_stats()
        before = torch.nova.memory_allocated()
        model = load_base(Path(folder), values.layers, torch.bfloat16, "nova:0")
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    assert weights <= torch.nova.max_memory_allocated() - before <= weights + 2 * buffers + 1024


def main(out: Path) -> None:
    import torch_nova  # noqa: F401

    problems = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
                problems[name] = ""
            except Exception:  # noqa: BLE001
                problems[name] = traceback.format_exc()
    out.write_text(json.dumps(problems))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

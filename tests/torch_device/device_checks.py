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


def check_tensors_of_the_host_and_of_two_cards_do_not_meet() -> None:
    import torch

    card = torch.ones(3, device="nova")
    raises(RuntimeError, "nova:0 and cpu in aten::add.Tensor", lambda: card + torch.ones(3))
    raises(RuntimeError, "nova:0 and cpu", lambda: card[torch.tensor([0])])
    raises(RuntimeError, "one card", lambda: card + torch.ones(3, device="nova:1"))
    assert (card + torch.tensor(1.0)).tolist() == [2.0, 2.0, 2.0], "a number is not a tensor of the host"


def check_pinned_memory_is_told_apart_also_by_its_views() -> None:
    import torch

    pageable = torch.ones(8)
    pinned = pageable.pin_memory()
    assert pinned.is_pinned() and pinned[2:].is_pinned() and torch.equal(pinned, pageable)
    assert not pageable.is_pinned() and not torch.ones(8, device="nova").is_pinned()
    raises(RuntimeError, "only memory of the host", lambda: torch.ones(8, device="nova").pin_memory())


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
    from flagperf_nova import used_bytes

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


def check_copies_that_are_not_waited_for_are_made_later() -> None:
    import torch

    reused = torch.ones(3)
    card = reused.to("nova", non_blocking=True)
    reused.fill_(7.0)
    host = card.to("cpu", non_blocking=True)
    assert host.isnan().all()
    torch.nova.synchronize()
    assert host.tolist() == card.tolist() == [7.0, 7.0, 7.0]


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


def check_tf32_rounds_and_fp32_does_not() -> None:
    import torch
    from flagperf_nova import NovaBackend

    from flagperf.api import precision
    from flagperf.worker.__main__ import prove_precision

    backend = NovaBackend()
    ones = torch.ones((32, 32), device="nova")
    for name, product in {"tf32": 32.0, "fp32": 32.0078125}.items():
        backend.set_precision(precision(name))
        prove_precision(precision(name), "nova:0", "nova")
        assert torch.matmul(ones + 2**-12, ones)[0, 0].item() == product
    assert torch.get_float32_matmul_precision() == "highest"


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
    from flagperf_nova import NovaBackend

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

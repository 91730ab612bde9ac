"""accelerate runs N trainings of one process each, and succeeds, where its environment does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.nn import Linear
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from flagperf.api import precision
from flagperf.builtin.cpu import CpuBackend
from flagperf.errors import Unsupported
from flagperf.worker.accelerator import CheckedAccelerator, _check_device, make_accelerator

pytestmark = pytest.mark.run


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    """accelerate keeps one state per process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_a_world_of_another_size_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="accelerate sees 1 processes, but the job has 2"):
        make_accelerator(CpuBackend(), precision("fp32"), 2, "cpu")


def test_a_single_rank_listens_on_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher's variables make accelerate form a group of one."""
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        make_accelerator(CpuBackend(), precision("fp32"), 1, "cpu")
        listening = [one for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        assert [one for one in listening if one.laddr.ip in ("0.0.0.0", "::")] == []
    finally:
        torch.distributed.destroy_process_group()


def test_a_precision_that_would_be_ignored_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="amp-fp16"):
        make_accelerator(CpuBackend(), precision("amp-fp16"), 1, "cpu")


def test_a_model_of_several_ranks_that_would_train_alone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen with accelerate 1.15 on a type that it does not know: two processes, and no exchange of gradients."""
    accelerator = make_accelerator(CpuBackend(), precision("fp32"), 1, "cpu")
    monkeypatch.setattr(CheckedAccelerator, "num_processes", 2)
    with pytest.raises(RuntimeError, match="a model of 2 processes as Linear: its gradients would not be exchanged"):
        accelerator.prepare(Linear(2, 2))
    frozen = Linear(2, 2).requires_grad_(requires_grad=False)
    assert accelerator.prepare(frozen) is frozen, "what is not trained has nothing to exchange"


def test_a_compiled_model_whose_gradients_are_exchanged_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate compiles what it has wrapped."""
    accelerator = make_accelerator(CpuBackend(), precision("fp32"), 1, "cpu")
    monkeypatch.setattr(CheckedAccelerator, "num_processes", 2)
    monkeypatch.setattr(Accelerator, "prepare", lambda _self, model: torch.compile(model))
    with pytest.raises(RuntimeError, match="as Linear: its gradients would not be exchanged"):
        accelerator.prepare(Linear(2, 2))
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        compiled = accelerator.prepare(DistributedDataParallel(Linear(2, 2)))
        assert not isinstance(compiled, DistributedDataParallel)
    finally:
        torch.distributed.destroy_process_group()


def test_an_optimizer_without_the_models_weights_is_an_error() -> None:
    accelerator = make_accelerator(CpuBackend(), precision("fp32"), 1, "cpu")
    with pytest.raises(RuntimeError, match="the optimizer holds none of the model's weights"):
        accelerator.prepare(Linear(2, 2), SGD(Linear(2, 2).parameters(), lr=1.0))


def test_what_accelerate_cannot_compute_in_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise ValueError("fp16 mixed precision requires a device in ('xpu',) (not 'cpu').")

    monkeypatch.setattr(CheckedAccelerator, "__init__", refuse)
    with pytest.raises(Unsupported, match="cannot compute in amp-fp16 on cpu"):
        make_accelerator(CpuBackend(), precision("amp-fp16"), 1, "cpu")


@pytest.mark.parametrize(
    ("chosen", "device", "is_right"),
    [("meta", "meta:1", True), ("meta:1", "meta:1", True), ("meta:0", "meta:1", False), ("cpu", "meta:1", False)],
)
def test_the_device_is_the_jobs_by_type_and_index(chosen: str, device: str, is_right: bool) -> None:
    if is_right:
        _check_device(torch.device(chosen), "meta", device)
        return
    with pytest.raises(RuntimeError, match=f"accelerate chose {chosen}, but the job runs on {device}"):
        _check_device(torch.device(chosen), "meta", device)

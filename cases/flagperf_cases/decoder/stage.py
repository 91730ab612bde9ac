"""A stage of the pipeline whose memory does not grow with the number of micro-batches."""

from __future__ import annotations

from typing import Any

from torch.distributed.pipelining import PipelineStage


class LeanStage(PipelineStage):  # type: ignore[misc]
    """torch's stage makes a receive buffer for every micro-batch of a step, forward and backward: 32 GiB at the
    published TP4PP8 with 1024 micro-batches. 1F1B has no more than `under_way` of them between forward and backward,
    and receives a gradient only after it has used the one before, so buffers are taken in turn.

    Where a torch has no such methods, these are never called and its own buffers are used.
    """

    @property
    def under_way(self) -> int:
        return int(self.num_stages - self.stage_index)

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        super()._setup_forward_recv_info(min(num_microbatches, self.under_way), has_backward)
        _take_in_turn(self.args_recv_info, num_microbatches)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        super()._setup_backward_recv_info(1)
        _take_in_turn(self.grad_recv_info, num_microbatches)
        self.chunks = num_microbatches


def _take_in_turn(buffers: dict[int, Any], num_microbatches: int) -> None:
    num_buffers = len(buffers)
    buffers.update({index: buffers[index % num_buffers] for index in range(num_buffers, num_microbatches)})

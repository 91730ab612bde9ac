"""A pipeline stage whose memory does not grow with the number of micro-batches."""

from __future__ import annotations

from typing import Any

from torch.distributed.pipelining import PipelineStage


class BufferReusingStage(PipelineStage):  # type: ignore[misc]
    """torch's stage allocates a receive buffer for every micro-batch of a step, forward and backward: 32 GiB at the
    published TP4PP8 with 1024 micro-batches. 1F1B has at most `in_flight` of them between forward and backward, and
    receives a gradient only after it has used the previous one, so buffers are reused in turn.

    A torch version without these methods never calls them, and uses its own buffers.
    """

    @property
    def in_flight(self) -> int:
        return int(self.num_stages - self.stage_index)

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        super()._setup_forward_recv_info(min(num_microbatches, self.in_flight), has_backward)
        _reuse_in_turn(self.args_recv_info, num_microbatches)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        super()._setup_backward_recv_info(1)
        _reuse_in_turn(self.grad_recv_info, num_microbatches)
        self.chunks = num_microbatches


def _reuse_in_turn(buffers: dict[int, Any], num_microbatches: int) -> None:
    num_buffers = len(buffers)
    buffers.update({index: buffers[index % num_buffers] for index in range(num_buffers, num_microbatches)})

"""Recorded operator calls: what a rank writes and a replay reads."""

from __future__ import annotations

from typing import Literal, Union

import msgspec

from flagperf.messages import Message

# The operator calls of a run, as `run --record-operators` writes them down and `run operators --from` replays them.
#
# Shapes, strides, types, arguments and counts; never the content of a tensor. Equal calls are one entry with a count,
# and every tensor argument refers to a table of the distinct shapes, so that a step of a hundred thousand calls stays
# small.


RECORDING_SCHEMA = 1
"""Incremented when a struct in this file changes in a way that an older reader would misread."""

Place = Literal["device", "host"]


class RecordedTensor(msgspec.Struct, frozen=True, array_like=True):
    """A tensor argument without its content. On a device whose memory is the host's, all tensors are on the device."""

    shape: tuple[int, ...]
    """Sizes of its dimensions."""
    stride: tuple[int, ...]
    """In elements, by dimension. 0 where it is broadcast."""
    dtype: str
    """As torch names it, without `torch.`."""
    place: Place = "device"
    """Whether it is in the device's memory."""


class TensorArgument(msgspec.Struct, frozen=True, tag="tensor"):
    """An argument that is a tensor."""

    index: int
    """In the table of tensors."""


class WordArgument(msgspec.Struct, frozen=True, tag="word"):
    """An argument that JSON has no value for."""

    kind: Literal["dtype", "layout", "memory_format", "place", "float"]
    """What kind of word it is. `float`: a number that is not finite."""
    value: str
    """Such as `bfloat16`, `channels_last`, `device`, `-inf`."""


Scalar = Union[None, bool, int, float, str, TensorArgument, WordArgument]  # noqa: UP007  (msgspec evaluates it)

Argument = Union[Scalar, list[Scalar]]  # noqa: UP007
"""An argument of a call."""


class ValueRange(msgspec.Struct, frozen=True, array_like=True):
    """The values of a tensor of integers or truth values, so that inputs can be drawn that the operator accepts."""

    low: int
    """The lowest value."""
    high: int
    """The highest value."""
    is_sorted: bool = False
    """One dimension, and no value is below the one before."""
    share: float | None = None
    """Of true values."""

    def union(self, other: ValueRange | None) -> ValueRange:
        """Return the range of both together."""
        if other is None:
            return self
        is_sorted = self.is_sorted and other.is_sorted
        return ValueRange(min(self.low, other.low), max(self.high, other.high), is_sorted, self.share)


class OperatorCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Calls of one operator with the same arguments. Fractions among them are those of the first call."""

    operator: str
    """With its overload, as torch names it: aten::add.Tensor."""
    count: int
    """Of all recorded steps."""
    args: list[Argument] = []
    """By position."""
    kwargs: dict[str, Argument] = {}
    """By name."""
    ranges: dict[str, ValueRange] = {}
    """Of the integer tensors among the arguments, by their place in the order of all tensor arguments."""
    obstacle: str = ""
    """Why it cannot be replayed: `collective`, or the argument that cannot be written down."""


class RecordedRanks(msgspec.Struct, frozen=True):
    """The calls of ranks that did the same."""

    ranks: list[int]
    """Of the recording run."""
    steps: int
    """How many were recorded."""
    tensors: list[RecordedTensor]
    """The different tensors that calls refer to."""
    calls: list[OperatorCall]
    """In the order in which each was first made."""


class Recording(msgspec.Struct, frozen=True):
    """operators.json of a bundle. In a job that replays it, `parts` has the ranks that are replayed only."""

    schema: int
    """RECORDING_SCHEMA."""
    run_id: str
    """Of the run that recorded it, like the fields that follow."""
    case: str
    """Its case."""
    case_version: int
    """The version of that case."""
    profile: str
    """Its configuration."""
    precision: str
    """Its precision."""
    vendor: str
    """The vendor's word."""
    device: str
    """The model's name."""
    torch: str
    """The version of torch."""
    parts: list[RecordedRanks]
    """One for all ranks that did the same."""
    step_seconds: float | None = None
    """Median of the measured steps of that run."""
    num_ranks: int = 1
    """Of that run."""
    ranks_left_out: int = 0
    """Ranks that differ from all that are kept: a bundle keeps a limited number of different ones."""


# RankOperators: the operator calls that one rank of a run has recorded.


class RankOperators(msgspec.Struct, frozen=True):
    """The recorded calls that one rank writes."""

    schema: int
    rank: int
    torch: str
    """Version."""
    steps: int
    """How many were recorded."""
    planned_steps: int
    """How many were to be recorded."""
    tensors: list[RecordedTensor] = []
    calls: list[OperatorCall] = []
    problem: Message | None = None
    """Why there are no steps, or fewer."""

"""Converts event files of schema 1 to current events. In schema 1, training and its pauses had dedicated event types,
which inference used too, and the three counts of a step were fields."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Union, cast, get_args

import msgspec

from flagperf.events.schema import AnyEvent, SpanBegan, SpanEnded, StepFinished, snake_case


class _Old(msgspec.Struct, frozen=True, tag_field="type", tag=snake_case):
    t_ns: int


class TrainingBegan(_Old, frozen=True):
    planned_steps: int | None = None


class TrainingEnded(_Old, frozen=True):
    pass


class Logged(_Old, frozen=True):
    began_ns: int


class Evaluated(_Old, frozen=True):
    began_ns: int
    step: int


class OldStepFinished(_Old, frozen=True, tag="step_finished"):
    step: int
    began_ns: int
    compute_ns: int
    wait_ns: int
    samples: int
    tokens: int = 0
    padded_tokens: int = 0
    loss: float | None = None
    diverged: bool = False


@functools.cache
def decoder() -> msgspec.json.Decoder[Any]:
    kept = [kind for kind in get_args(AnyEvent) if kind not in (SpanBegan, SpanEnded, StepFinished)]
    old = (TrainingBegan, TrainingEnded, Logged, Evaluated, OldStepFinished)
    kinds = (*kept, *old)
    return msgspec.json.Decoder(Union[kinds])  # noqa: UP007  (they are known at run time only)


def converted(events: Iterable[Any], measured_span: str) -> Iterator[AnyEvent]:
    """`measured_span` is the name of the loop in the case's kind; files of schema 1 do not contain it."""
    began_ns = steps = 0
    for event in events:
        if isinstance(event, TrainingBegan):
            began_ns = event.t_ns
            yield SpanBegan(event.t_ns, measured_span, event.planned_steps)
        elif isinstance(event, TrainingEnded):
            yield SpanEnded(event.t_ns, measured_span, began_ns, steps)
        elif isinstance(event, Evaluated):
            yield SpanEnded(event.t_ns, "evaluation", event.began_ns, event.step)
        elif isinstance(event, Logged):
            yield SpanEnded(event.t_ns, "logging", event.began_ns, steps)
        elif isinstance(event, OldStepFinished):
            steps = event.step
            yield _step(event)
        else:
            yield cast("AnyEvent", event)


def _step(old: OldStepFinished) -> StepFinished:
    counts = {"samples": old.samples, "tokens": old.tokens, "padded_tokens": old.padded_tokens}
    work = {name: count for name, count in counts.items() if count}
    return StepFinished(
        old.t_ns, old.step, old.began_ns, old.compute_ns, old.wait_ns, work, loss=old.loss, diverged=old.diverged
    )

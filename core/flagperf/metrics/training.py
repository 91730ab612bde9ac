"""Training: every rank's training span, checked, with its steps split into warm-up and kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from flagperf.events import StepFinished
from flagperf.metrics.finding import Absent
from flagperf.metrics.ranks import RankRecord
from flagperf.spec import Job, Manifest, flatten


class Span(msgspec.Struct, frozen=True):
    began_ns: int
    ended_ns: int

    @property
    def length_ns(self) -> int:
        return self.ended_ns - self.began_ns

    def clipped(self, to: Span) -> Span:
        """The part inside `to`; of length 0 where there is none."""
        began_ns = min(max(self.began_ns, to.began_ns), to.ended_ns)
        return Span(began_ns, max(began_ns, min(self.ended_ns, to.ended_ns)))


class RankTraining(msgspec.Struct, frozen=True):
    rank: int
    timing: str
    span: Span
    """From TrainingBegan to TrainingEnded."""
    window: Span
    """From the end of warm-up to TrainingEnded."""
    dropped: tuple[StepFinished, ...]
    kept: tuple[StepFinished, ...]
    pauses: tuple[Span, ...]
    """Evaluation and logging inside the window, in order."""


class Training(msgspec.Struct, frozen=True):
    ranks: tuple[RankTraining, ...]

    @property
    def steps(self) -> list[tuple[StepFinished, ...]]:
        """Warm-up included: each step as all ranks recorded it, index is the rank."""
        return list(zip(*(rank.dropped + rank.kept for rank in self.ranks), strict=True))

    @property
    def steps_kept(self) -> int:
        return len(self.ranks[0].kept)

    @property
    def steps_dropped(self) -> int:
        return len(self.ranks[0].dropped)


NO_TRAINING = Absent("not_applicable", "an inference case has no training steps")
NO_INFERENCE = Absent("not_applicable", "a training case has no inference")


def training_of(
    job: Job, manifest: Manifest, records: Sequence[RankRecord], failure: Absent | None
) -> Training | Absent:
    """The measured span of a case: of an inference case its loop over the data, a step for each batch."""
    if failure is not None:
        return failure
    key = f"{manifest.kind}.warmup_steps"
    warmup_steps = dict(flatten(job.config.values)).get(key, 0)
    ranks: list[RankTraining] = []
    for record in records:
        absent = _unusable(record) or _disorder(record) or _warmup_mismatch(record, key, warmup_steps)
        if absent:
            return absent
        ranks.append(_rank_training(record, warmup_steps))
    return _unequal_steps(records) or Training(tuple(ranks))


def _rank_training(record: RankRecord, warmup_steps: int) -> RankTraining:
    span = Span(record.began[0].t_ns, record.training_ended[0].t_ns)
    if record.warmups:
        opened_ns, last_dropped = record.warmups[0].t_ns, record.warmups[0].step
        kept = tuple(step for step in record.steps if step.step > last_dropped)
    elif warmup_steps:
        opened_ns, kept = span.ended_ns, ()
    else:
        opened_ns, kept = span.began_ns, record.steps
    window = Span(opened_ns, span.ended_ns)
    dropped = record.steps[: len(record.steps) - len(kept)]
    return RankTraining(record.rank, record.started.timing, span, window, dropped, kept, _pauses(record, window))


def _pauses(record: RankRecord, window: Span) -> tuple[Span, ...]:
    spans = [Span(pause.began_ns, pause.t_ns).clipped(window) for pause in record.pauses]
    return tuple(sorted((span for span in spans if span.length_ns > 0), key=lambda span: span.began_ns))


def _unusable(record: RankRecord) -> Absent | None:
    if not record.began or not record.training_ended:
        return Absent("not_measured", f"rank {record.rank} recorded no training span")
    for what, events in (
        ("beginnings of training", record.began),
        ("ends of training", record.training_ended),
        ("ends of warm-up", record.warmups),
    ):
        if len(events) > 1:
            return _invalid(record, f"has {len(events)} {what}")
    return None


def _disorder(record: RankRecord) -> Absent | None:
    """A case runs on one thread and one clock: moments follow each other, steps do not overlap and count up by one."""
    moments = [record.began[0].t_ns, *(warmup.t_ns for warmup in record.warmups), record.training_ended[0].t_ns]
    if any(later < earlier for earlier, later in pairwise(moments)):
        return _invalid(record, f"has its training, warm-up and end out of order: {moments} ns")
    for pause in record.pauses:
        if pause.t_ns < pause.began_ns:
            return _invalid(record, f"has an evaluation or logging that ends at {pause.t_ns} ns before it began")
    return _step_disorder(record, moments[0], moments[-1])


def _step_disorder(record: RankRecord, began_ns: int, ended_ns: int) -> Absent | None:
    previous_ns, number = began_ns, None
    for step in record.steps:
        if not previous_ns <= step.began_ns <= step.t_ns <= ended_ns:
            return _invalid(record, f"has step {step.step} from {step.began_ns} to {step.t_ns} ns, out of order")
        if number is not None and step.step != number + 1:
            return _invalid(record, f"has step {step.step} after step {number}")
        if min(step.compute_ns, step.wait_ns, step.samples, step.tokens, step.padded_tokens) < 0:
            return _invalid(record, f"has a negative time or count in step {step.step}")
        previous_ns, number = step.t_ns, step.step
    return None


def _warmup_mismatch(record: RankRecord, key: str, warmup_steps: int) -> Absent | None:
    """Warm-up is declared, never detected: the record has to show as many warm-up steps as the configuration says."""
    if not record.warmups:
        if warmup_steps and len(record.steps) > warmup_steps:
            return _invalid(record, f"did {len(record.steps)} steps but did not end its warm-up after {warmup_steps}")
        return None
    warmup = record.warmups[0]
    dropped = sum(step.step <= warmup.step for step in record.steps)
    if dropped != warmup_steps:
        return _invalid(record, f"ended its warm-up after {dropped} steps; {key} is {warmup_steps}")
    late = any(step.t_ns > warmup.t_ns for step in record.steps if step.step <= warmup.step)
    early = any(step.began_ns < warmup.t_ns for step in record.steps if step.step > warmup.step)
    if late or early:
        return _invalid(record, f"has a step on the wrong side of the end of warm-up at {warmup.t_ns} ns")
    return None


def _unequal_steps(records: Sequence[RankRecord]) -> Absent | None:
    """An optimizer step is one step of the whole job, so ranks that all succeeded have done the same ones."""
    first = records[0]
    for record in records[1:]:
        if _numbers(record) != _numbers(first):
            return _invalid(record, f"has steps {_numbers(record)}, rank {first.rank} has {_numbers(first)}")
    return None


def _numbers(record: RankRecord) -> str:
    return f"{record.steps[0].step} to {record.steps[-1].step}" if record.steps else "none"


def _invalid(record: RankRecord, what: str) -> Absent:
    return Absent("invalid_telemetry", f"rank {record.rank} {what}")

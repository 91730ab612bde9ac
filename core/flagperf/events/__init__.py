"""The record of a run: typed events, and the files they stand in."""

from flagperf.events.files import EventFile, EventWriter, decode_events, read_all, read_events, this_clock
from flagperf.events.schema import (
    EVENT_SCHEMA,
    AnyEvent,
    Clock,
    CpuUse,
    DataDescribed,
    Evaluated,
    EvaluationAdvanced,
    Event,
    Logged,
    ModelDescribed,
    PartsReported,
    ProbeEnded,
    ProbeFailed,
    ProbeStarted,
    ProcessesListed,
    Reported,
    RunEnded,
    RunStarted,
    Sampled,
    SampleMissed,
    StepFinished,
    TrainingBegan,
    TrainingEnded,
    WarmupEnded,
    WorkerEnded,
    WorkersEnded,
    WorkersLaunched,
    WorkerStarted,
)

__all__ = [
    "EVENT_SCHEMA", "AnyEvent", "Clock", "CpuUse", "DataDescribed", "Evaluated", "EvaluationAdvanced", "Event",
    "EventFile", "EventWriter", "Logged", "ModelDescribed", "PartsReported", "ProbeEnded", "ProbeFailed",
    "ProbeStarted", "ProcessesListed", "Reported", "RunEnded", "RunStarted", "SampleMissed", "Sampled", "StepFinished",
    "TrainingBegan", "TrainingEnded", "WarmupEnded", "WorkerEnded", "WorkerStarted", "WorkersEnded", "WorkersLaunched",
    "decode_events", "read_all", "read_events", "this_clock",
]  # fmt: skip

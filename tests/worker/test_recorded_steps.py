"""The context with --record-operators, against a spy device: the last steps are recorded and nothing of them is
measured."""

import contextlib

import msgspec
import pytest
from context_fakes import World, make_context, metrics_of

from flagperf.api import RecordedRanks, Recording
from flagperf.api.operator_calls import RankOperators
from flagperf.events import SpanBegan, StepFinished
from flagperf.spec.protocol import work_orders
from flagperf.worker.__main__ import _run_case
from flagperf.worker.step_timing import RecordedSteps
from run_builders import minimal_job


class SpySteps(RecordedSteps):
    """Writes into the journal when the recorder is on."""

    def __init__(self, planned, world):
        super().__init__(planned)
        self.world = world

    @contextlib.contextmanager
    def recorder(self, device):
        self.world.journal.append("recording")
        yield
        self.world.journal.append("recorded")


def recording_context(world, steps, **options):
    context = make_context(world, **options)
    context._recorded = SpySteps(steps, world)
    return context


def train(world, context, planned, done=None):
    with context.training(planned_steps=planned):
        for _ in range(planned if done is None else done):
            with context.step() as step:
                world.journal.append("body")
                world.host(100)
                step.done(samples=4)
        with context.evaluation():
            world.host(5_000)


def problem_of(context):
    return msgspec.json.decode(context._recorded.operators(0), type=RankOperators).problem


def test_the_last_steps_are_recorded_after_the_span_has_ended_with_the_device_synchronised(world):
    train(world, recording_context(world, 2, events=True), 4)
    assert world.of(SpanBegan)[0].planned_steps == 2, "progress is told how many will be measured"
    bodies = world.journal[world.journal.index("body") :]
    assert bodies == [
        "body",
        "record",
        "record",
        "body",
        "record",
        "synchronize",
        "elapsed",
        "elapsed",
        "write StepFinished",
        "write StepFinished",
        "write training ended",
        *["recording", "body", "recorded"] * 2,
        *["synchronize"] * 2,  # of the evaluation
        "write evaluation ended",
    ]


def test_measured_steps_and_their_speed_are_the_same_as_without_a_recording():
    worlds = []
    for steps in (0, 2):
        world = World()
        train(world, recording_context(world, steps, warmup_steps=1), 4 + steps)
        worlds.append(world)
    without, recorded = worlds
    assert recorded.of(StepFinished) == without.of(StepFinished)
    speed, other = (metrics_of(world, warmup_steps=1) for world in worlds)
    assert other["p_core"].value == speed["p_core"].value == 4 / 100e-9
    assert other["steps_kept"].value == 3
    assert other["p_whole"].value == 4 / 100e-9, "the evaluation after the last step is not in the window any more"


def test_a_recorded_step_has_to_say_what_it_did_too(world):
    context = recording_context(world, 1)
    with pytest.raises(RuntimeError, match=r"step\.done"), context.training(planned_steps=2):
        for _ in range(2):
            with context.step() as step:
                if not context._recorded.is_due(context._num_steps):
                    step.done(samples=1)


def test_the_recorder_is_off_after_a_step_that_raised(world):
    context = recording_context(world, 1)
    with pytest.raises(ZeroDivisionError), context.training(planned_steps=2):
        for number in range(2):
            with context.step() as step:
                step.done(samples=1 // (1 - number))
    assert "recording" in world.journal
    assert "training ended" in world.kinds()


@pytest.mark.parametrize(("planned", "code"), [(None, "recording.no_plan"), (5, "recording.too_few_steps")])
def test_where_there_are_too_few_steps_all_are_measured_and_the_recording_says_so(world, planned, code):
    context = recording_context(world, 3, warmup_steps=2)
    with context.training(planned_steps=planned):
        for _ in range(5):
            with context.step() as step:
                step.done(samples=4)
    assert len(world.of(StepFinished)) == 5
    assert problem_of(context).code == code


def test_a_case_that_ends_early_leaves_a_recording_that_says_so(world):
    context = recording_context(world, 3)
    train(world, context, 10, done=6)
    assert len(world.of(StepFinished)) == 6
    assert world.kinds().count("training ended") == 1
    assert str(problem_of(context)).startswith("operators of 0 steps were recorded: the case ended after 6 of the 10")


def test_steps_beyond_the_plan_are_recorded_and_not_measured(world):
    context = recording_context(world, 2)
    train(world, context, 4, done=5)
    assert len(world.of(StepFinished)) == 2
    assert context._recorded.steps == 3


def test_without_a_measured_loop_nothing_is_recorded(world):
    assert problem_of(recording_context(world, 2)).code == "recording.no_span"


def test_a_case_that_replays_nothing_does_not_pass_for_one_that_does(tmp_path):
    recording = Recording(1, "r", "demo", 1, "tiny", "fp32", "cpu", "CPU", "2.13.0", [RecordedRanks([0], 1, [], [])])
    job = minimal_job(recording=recording, case_target="builtins:repr")  # it takes the context and does nothing
    (order,) = work_orders(job)
    context = make_context(World())
    with pytest.raises(RuntimeError, match=r"does not ask for ctx\.recording\(\)"):
        _run_case(order, context, tmp_path)
    assert context.recording() is None
    _run_case(order, context, tmp_path)

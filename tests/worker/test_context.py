"""The context against a spy device under a fake clock. All times are nanoseconds of that clock, which opens at 1000."""

import collections

import pytest
from context_fakes import Batch, Loss, World, make_context, new_world

from flagperf.events import (
    EvaluationAdvanced,
    PartsReported,
    Reported,
    RowMeasured,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WarmupEnded,
)

ALWAYS, NEVER = 0.0, 1e9
"""Seconds between two flushes. A flush needs that the clock has moved since the last one."""


def run_step(world, context, compute_ns=100, loss=None, **counts):
    with context.step() as step:
        world.journal.append("body")
        world.host(compute_ns)
        step.done(samples=4, loss=loss, **counts)


# --- where the device is waited for ---------------------------------------------------------------------------------

TIMED, SYNCHRONISED = ["record", "body", "record"], ["synchronize", "body", "synchronize"]
FLUSHED = [*TIMED, "synchronize", "elapsed", "write StepFinished", "write logging ended"]


@pytest.mark.parametrize(
    ("events", "flush_seconds", "expected"),
    [(True, NEVER, TIMED), (True, ALWAYS, FLUSHED), (False, NEVER, SYNCHRONISED)],
)
def test_the_device_is_waited_for_after_timed_steps_and_at_both_ends_of_others(events, flush_seconds, expected):
    world, context = new_world(events=events, flush_seconds=flush_seconds)
    with context.training():
        for _ in range(3):
            world.journal.clear()
            run_step(world, context)
            assert world.journal == expected


def test_synchronised_steps_take_the_time_until_the_device_is_done():
    world, context = new_world()
    with context.training():
        world.launch(30)  # queued before the step, so none of its time
        with context.step() as step:
            world.launch(500)
            step.done(samples=1)
    (step,) = world.of(StepFinished)
    assert (step.began_ns, step.t_ns, step.compute_ns) == (1030, 1530, 500)


def test_timed_steps_take_the_devices_time_while_the_host_runs_ahead():
    world, context = new_world(events=True)
    with context.training():
        for _ in range(2):
            with context.step() as step:
                world.host(10)
                world.launch(500)
                step.done(samples=1)
    first, second = world.of(StepFinished)
    assert (first.began_ns, first.t_ns, first.compute_ns) == (1000, 1010, 510)
    assert (second.began_ns, second.t_ns, second.compute_ns) == (1010, 1020, 500)
    assert world.spans("training") == [SpanEnded(2010, "training", began_ns=1000, step=2)]


# --- what is written, exactly ---------------------------------------------------------------------------------------


def test_a_whole_training_by_the_clock():
    """Two steps of 100 ns, one of them warm-up, then an evaluation of 50 ns. A wait takes 20, a copy 3, a write 7."""
    world, context = new_world(copy_ns=3, write_ns=7, warmup_steps=1, flush_seconds=NEVER)
    with context.training(planned_steps=2):
        for _batch in context.batches(world.loader(Batch(world), Batch(world), wait_ns=20)):
            run_step(world, context, loss=0.5, tokens=9, padded_tokens=1)
        with context.evaluation():
            world.host(50)
        world.host(11)
    context.report(acc=0.75)

    work = {"samples": 4, "tokens": 9, "padded_tokens": 1}
    counts = {"compute_ns": 100, "wait_ns": 23, "work": work, "loss": 0.5}
    assert world.events == [
        SpanBegan(1000, "training", planned_steps=2),  # written until 1007; then 23 of wait and copy
        StepFinished(1130, step=1, began_ns=1030, **counts),
        SpanEnded(1137, "logging", began_ns=1130, step=1),  # written until 1144
        WarmupEnded(1144, step=1),  # written until 1151; then wait and copy
        StepFinished(1274, step=2, began_ns=1174, **counts),  # written before the evaluation, from 1274 to 1281
        SpanEnded(1281, "logging", began_ns=1274, step=2),
        SpanEnded(1338, "evaluation", began_ns=1288, step=2),  # written until 1345
        SpanEnded(1356, "training", began_ns=1000, step=2),
        Reported(1363, step=2, values={"acc": 0.75}),
    ]


def test_device_is_done_when_training_begins_and_ends():
    world, context = new_world(events=True)
    world.launch(200)
    with context.training():
        world.launch(300)
    assert world.events == [SpanBegan(1200, "training"), SpanEnded(1500, "training", began_ns=1200, step=0)]


def test_warmup_ends_when_the_device_is_done_with_its_last_step():
    world, context = new_world(events=True, warmup_steps=1)
    with context.training(), context.step() as step:
        world.launch(400)
        step.done(samples=1)
    assert world.of(WarmupEnded) == [WarmupEnded(1400, step=1)]


def test_evaluation_begins_when_the_device_is_done_with_the_steps():
    world, context = new_world(write_ns=7, events=True)
    with context.training():
        with context.step() as step:
            world.launch(500)
            step.done(samples=1)
        with context.evaluation():
            world.host(60)
    assert world.spans("logging") == [SpanEnded(1514, "logging", began_ns=1507, step=1)]
    assert world.spans("evaluation") == [SpanEnded(1581, "evaluation", began_ns=1521, step=1)]


def test_an_evaluation_says_how_far_all_ranks_are_and_not_too_often():
    world, context = new_world(flush_seconds=1e-6, world_size=2)
    with context.evaluation(planned_rows=9) as evaluation:
        for rows in (2, 1, 1, 1):
            world.host(600)
            evaluation.done(rows)
    assert world.of(EvaluationAdvanced) == [
        EvaluationAdvanced(2200, began_ns=1000, rows=6, planned_rows=9),
        EvaluationAdvanced(3400, began_ns=1000, rows=9, planned_rows=9),  # the other rank has one row less
    ]
    advanced = ["write EvaluationAdvanced"] * 2
    assert world.journal == ["synchronize", *advanced, "synchronize", "write evaluation ended"]


# --- when it is written ---------------------------------------------------------------------------------------------


def test_loss_is_read_only_after_the_span():
    world, context = new_world(flush_seconds=ALWAYS)
    with context.training():
        world.journal.clear()
        run_step(world, context, loss=Loss(world, 0.25))
    assert world.journal[:4] == ["synchronize", "body", "synchronize", "synchronize"]
    assert world.journal[4] == "read loss"
    assert world.of(StepFinished)[0].loss == 0.25


def test_nothing_is_written_inside_a_step_that_is_longer_than_the_interval():
    world, context = new_world(flush_seconds=1.0)
    with context.training():
        run_step(world, context, compute_ns=400_000_000)
        with context.step() as step:
            world.journal.clear()
            world.host(5_000_000_000)
            step.done(samples=1)
            assert world.journal == []
        assert world.kinds() == ["training began", "StepFinished", "StepFinished", "logging ended"]


def test_steps_are_written_when_the_interval_has_passed():
    """Steps of 0.4 s: the third ends 1.2 s after training began, the sixth 1.2 s after that flush."""
    world, context = new_world(flush_seconds=1.0)
    written = []
    with context.training():
        for _ in range(7):
            run_step(world, context, compute_ns=400_000_000)
            written.append(len(world.of(StepFinished)))
    assert written == [0, 0, 3, 3, 3, 6, 6]
    assert len(world.of(StepFinished)) == 7
    assert len(world.spans("logging")) == 2


def test_what_is_left_at_the_end_is_written_outside_of_training():
    world, context = new_world(write_ns=7, flush_seconds=NEVER)
    with context.training():
        run_step(world, context)
    assert world.kinds() == ["training began", "StepFinished", "training ended"]
    assert world.spans("training")[0].t_ns == world.of(StepFinished)[0].t_ns


# --- what is counted ------------------------------------------------------------------------------------------------


def test_wait_is_not_the_contexts_own_writing():
    world, context = new_world(write_ns=500, flush_seconds=ALWAYS)
    with context.training():
        for _batch in context.batches(world.loader(1, 2, wait_ns=40)):
            run_step(world, context)
    assert [step.wait_ns for step in world.of(StepFinished)] == [40, 40]


def test_a_step_of_two_batches_has_waited_for_both():
    world, context = new_world()
    with context.training():
        batches = context.batches(world.loader(1, 2, wait_ns=40))
        next(batches)
        next(batches)
        run_step(world, context)
    assert [step.wait_ns for step in world.of(StepFinished)] == [80]


def test_batches_moves_what_has_to_and_keeps_the_shape_of_the_rest():
    world, context = new_world()
    pair = collections.namedtuple("pair", "inputs labels")(Batch(world), Batch(world))
    nested = [Batch(world), (Batch(world), 3)]
    batch = {"x": Batch(world), "nested": nested, "name": "a", "none": None, "pair": pair}
    (moved,) = context.batches([batch])
    assert moved["x"].device == moved["nested"][0].device == moved["nested"][1][0].device == "spy:0"
    assert isinstance(moved["nested"][1], tuple)
    assert (moved["pair"].inputs.device, moved["pair"].labels.device) == ("spy:0", "spy:0")
    assert (moved["nested"][1][1], moved["name"], moved["none"]) == (3, "a", None)
    assert batch["x"].device == "host"


def test_report_inside_training_is_logging():
    world, context = new_world(write_ns=7)
    with context.training():
        run_step(world, context)
        context.report(acc=0.5, evaluated=8)
    assert world.of(Reported) == [Reported(1107, step=1, values={"acc": 0.5, "evaluated": 8})]
    assert world.spans("logging") == [SpanEnded(1114, "logging", began_ns=1107, step=1)]


def test_parts_are_reported_as_a_value_is():
    world, context = new_world()
    with context.training():
        context.report_parts("acc", "subject", {"law": 1, "logic": 0.5})
    (parts,) = world.of(PartsReported)
    assert (parts.step, parts.name, parts.by, parts.values) == (0, "acc", "subject", {"law": 1.0, "logic": 0.5})
    assert len(world.spans("logging")) == 1
    with pytest.raises(ValueError, match="the case reported law = nan"):
        context.report_parts("acc", "subject", {"law": float("nan")})


def test_report_inside_an_evaluation_is_no_logging_of_its_own():
    world, context = new_world(write_ns=7)
    with context.training(), context.evaluation():
        context.report(acc=0.5)
    assert world.kinds() == ["training began", "Reported", "evaluation ended", "training ended"]


def test_any_other_part_of_a_run_has_a_name_too():
    world, context = new_world(write_ns=7)
    with context.span("compiling"):
        world.launch(60)
    assert world.events == [SpanEnded(1060, "compiling", began_ns=1000, step=0)]


def test_the_span_of_an_inference_has_its_name_and_its_own_warm_up():
    world, context = new_world(config={"inference": {"warmup_steps": 2}}, kind="inference")
    with context.inference(planned_steps=3):
        for _ in range(3):
            run_step(world, context)
    assert world.events[0] == SpanBegan(1000, "inference", planned_steps=3)
    assert [event.step for event in world.of(WarmupEnded)] == [2]


def test_a_case_of_another_kind_is_told_so():
    with pytest.raises(RuntimeError, match=r"ctx\.inference\(\) was called by a case of kind 'training'"):
        make_context(World()).inference()


def test_a_row_has_every_repeat(world):
    make_context(world).row("copy", {"bytes": 1024}, [0.5, 0.25], "s", bytes=2048)
    assert world.events == [RowMeasured(1000, "copy", {"bytes": "1024"}, "s", (0.5, 0.25), {"bytes": 2048})]


def test_an_amount_of_work_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="unknown amount of work 'pixels'; known: samples, tokens"):
        make_context(World()).row("copy", {}, [1.0], "s", pixels=3)


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_step_without_done_is_an_error_that_says_what_to_do():
    world, context = new_world()
    with context.training():
        with pytest.raises(RuntimeError, match=r"without step\.done\(samples="), context.step():
            pass
        run_step(world, context)
    assert [step.step for step in world.of(StepFinished)] == [1]


def test_an_exception_inside_a_step_passes_through_and_leaves_no_step():
    world, context = new_world()
    with context.training():
        with pytest.raises(ZeroDivisionError), context.step() as step:
            step.done(samples=1)
            raise ZeroDivisionError
        run_step(world, context)
    assert [step.step for step in world.of(StepFinished)] == [1]


@pytest.mark.parametrize(("name", "written"), [("training", ["training began"]), ("evaluation", [])])
def test_an_exception_inside_a_span_leaves_no_end_of_it(name, written):
    world, context = new_world()
    with pytest.raises(ZeroDivisionError), getattr(context, name)():
        raise ZeroDivisionError
    assert world.kinds() == written


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_report_that_is_no_number_is_refused_by_name(world, value):
    with pytest.raises(ValueError, match="acc = "):
        make_context(world).report(acc=value)
    assert world.events == []

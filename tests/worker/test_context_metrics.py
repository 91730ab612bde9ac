"""From the spans of a case to the three throughputs: p_whole <= p_train <= p_core whatever a case does."""

import random

import pytest
from context_fakes import Loss, World, make_context, metrics_of, new_world

from flagperf.event_files import EventWriter, read_events
from flagperf.events import StepFinished

MS = 1_000_000
THROUGHPUTS = ("p_whole", "p_train", "p_core")


def throughputs(world, **how):
    metrics = [metrics_of(world, **how)[name] for name in THROUGHPUTS]
    assert all(metric.value for metric in metrics), metrics[0].detail
    return [metric.value for metric in metrics]


def queue_step(world, context, host_ns, device_ns, samples=1):
    with context.step() as step:
        world.launch(device_ns)
        world.host(host_ns)
        step.done(samples=samples)


def test_throughputs_of_a_device_that_is_always_busy():
    """Five steps of 100 ms queued in 5 ms, one of them warm-up; an evaluation of 200 ms in the middle.

    The window opens when the warm-up step is done: 4 steps, the evaluation, and four writes of 1 ms during which the
    device has nothing to do, one of them the logging span.
    """
    world, context = new_world(write_ns=MS, events=True, warmup_steps=1)
    with context.training():
        for _ in range(3):
            queue_step(world, context, MS, 100 * MS, samples=6)
        with context.evaluation():
            world.launch(200 * MS)
        for _ in range(2):
            queue_step(world, context, MS, 100 * MS, samples=6)
    whole, train, core = throughputs(world, events=True, warmup_steps=1)
    assert core == pytest.approx(24 / 0.4)
    assert train == pytest.approx(24 / 0.403)
    assert whole == pytest.approx(24 / 0.604)


def test_throughputs_where_the_host_is_what_takes_time():
    """Four steps of 10 ms, each after 30 ms of waiting for data."""
    world, context = new_world()
    with context.training():
        for _batch in context.batches(world.loader(*range(4), wait_ns=30 * MS)):
            queue_step(world, context, 0, 10 * MS)
    assert throughputs(world) == pytest.approx([4 / 0.16, 4 / 0.16, 4 / 0.04])
    assert metrics_of(world)["data_wait_share"].value == pytest.approx(0.75)


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_nesting_holds_whatever_the_timing(seed, events):
    """Queues that run ahead and run dry, writes, reports, waits and evaluations of any length."""
    source = random.Random(seed)
    world = World(copy_ns=source.randrange(MS), write_ns=source.randrange(3 * MS))
    context = make_context(world, events=events, warmup_steps=2, flush_seconds=source.choice([0, 0.01, 0.1]))
    with context.training():
        for _batch in context.batches(world.loader(*range(20), wait_ns=source.randrange(5 * MS))):
            queue_step(world, context, source.randrange(5 * MS), source.randrange(MS, 40 * MS))
            world.host(source.randrange(2 * MS))
            if source.random() < 0.2:
                context.report(acc=0.5)
            if source.random() < 0.2:
                with context.evaluation():
                    world.launch(source.randrange(50 * MS))
    whole, train, core = throughputs(world, events=events, warmup_steps=2)
    assert 0 < whole <= train <= core


# --- what a case may do and the context does not bear ----------------------------------------------------------------


def test_report_inside_a_step_is_refused():
    """Five of them, each in a step of 100 ms, would leave 496 ms for 500 ms of computing."""
    world, context = new_world(write_ns=MS)
    with pytest.raises(RuntimeError, match="inside a step"), context.training():
        for _ in range(5):
            with context.step() as step:
                world.launch(100 * MS)
                context.report(acc=0.5)
                step.done(samples=1)


def test_batches_of_an_evaluation_are_no_wait_of_the_next_step():
    world, context = new_world()
    with context.training():
        with context.evaluation():
            for _batch in context.batches(world.loader(1, 2, 3, wait_ns=100 * MS)):
                pass
        queue_step(world, context, 0, 10 * MS)
    assert world.of(StepFinished)[0].wait_ns == 0
    assert throughputs(world) == pytest.approx([1 / 0.31, 1 / 0.01, 1 / 0.01])


def test_batches_before_training_are_no_wait_of_its_first_step():
    world, context = new_world()
    list(context.batches(world.loader(1, wait_ns=100 * MS)))
    with context.training():
        queue_step(world, context, 0, 10 * MS)
    assert throughputs(world) == pytest.approx([100.0] * 3)


def test_a_report_of_anything_with_float_can_be_written(world, tmp_path):
    """A tensor or a number of numpy, as a metric library gives it."""
    world.write = EventWriter(tmp_path / "rank-00000.jsonl").write
    make_context(world).report(acc=Loss(world, 0.5))
    assert read_events(tmp_path / "rank-00000.jsonl").events[0].values == {"acc": 0.5}

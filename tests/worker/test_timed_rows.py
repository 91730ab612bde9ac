"""Timed rows against a spy device under a fake clock."""

import contextlib

import msgspec
import pytest
from context_fakes import SpyBackend, World, make_context

from flagperf.errors import Unsupported
from flagperf.events import RowMeasured
from flagperf.units import SECOND_NS
from flagperf.worker import Timed, WrongOutput
from flagperf.worker import row_timing as worker_turns
from flagperf.worker.rank_sync import Ranks
from flagperf.worker.row_timing import RowTable
from flagperf.worker.timer import MeasureRules

MS = 1_000_000
MEASURE = {"seconds": 0.1, "min_samples": 30, "warmup_seconds": 0.02, "warmup_cap_seconds": 0.05}


def timed_context(world, *, events=False, **measure):
    return make_context(world, events=events, kind="base", config={"measure": {**MEASURE, **measure}})


def work(world, device_ns, host_ns=0, **more):
    """The output is the number of the call. Times may be functions of it."""
    calls = []

    def call():
        calls.append(len(calls) + 1)
        world.host(host_ns(calls[-1]) if callable(host_ns) else host_ns)
        world.launch(device_ns(calls[-1]) if callable(device_ns) else device_ns)
        return calls[-1]

    return Timed(call=call, check=more.pop("check", lambda output: {"output": str(output)}), **more)


def row_of(world, context, prepare, labels=None):
    with context.measured():
        return context.timed_row("thing", labels or {"size": 1}, prepare)


@pytest.mark.parametrize("events", [False, True])
def test_every_sample_is_kept_with_its_start_and_the_time_of_one_call(world, events):
    row = row_of(world, timed_context(world, events=events), lambda: work(world, 5 * MS, flops=10, bytes=20))
    assert row.status == "ok" and len(row.values) == len(row.timing.starts_ns) >= 30
    assert set(row.values) == {0.005}
    assert row.timing.clock == ("device_events" if events else "synchronize")
    assert row.timing.calls == 1 and row.timing.first_ns == 5 * MS
    assert list(row.timing.starts_ns) == sorted(row.timing.starts_ns) and row.timing.starts_ns[0] == 0
    assert row.timing.ended_ns - row.timing.began_ns >= 30 * 5 * MS
    assert row.work == {"flops": 10, "bytes": 20} and row.labels == {"size": "1"}


def test_the_duration_is_enforced_where_calls_become_faster_than_in_the_warm_up(world):
    """Another process takes the core during the warm-up: blocks are planned by their own pace as well."""
    context = timed_context(world, seconds=2.0, min_samples=1)
    row = row_of(world, context, lambda: work(world, 5 * MS, host_ns=lambda call: 200 * MS if call <= 31 else 0))
    assert row.timing.ended_ns - row.timing.began_ns >= 2 * SECOND_NS
    assert set(row.values) == {0.005}


@pytest.mark.parametrize(
    "disturbance",
    [
        # all three blocks that size the batch are disturbed, and so is the first of the warm-up
        lambda call: 2 * MS if call <= 41 else 0,
        # another process takes the core while the first calls are tried
        lambda call: 10_000 if call <= 3 else 20 * MS if call == 4 else 0,
    ],
)
def test_batches_have_a_millisecond_also_where_calls_were_slower_while_they_were_tried(world, disturbance):
    row = row_of(world, timed_context(world), lambda: work(world, 10_000, host_ns=disturbance))
    assert row.timing.calls == 100 and set(row.values) == {1e-5}
    assert row.timing.ended_ns - row.timing.began_ns >= 0.1 * SECOND_NS


@pytest.mark.parametrize(
    ("seconds", "device_ns", "calls", "samples"), [(60.0, 10_000, 20_000, 300), (6.0, MS, 1, 6000)]
)
def test_batches_are_longer_in_a_longer_row_and_a_call_of_a_millisecond_is_a_sample(
    world, seconds, device_ns, calls, samples
):
    """60,000 samples of a millisecond would be two megabytes for each of a thousand rows."""
    row = row_of(world, timed_context(world, seconds=seconds), lambda: work(world, device_ns))
    assert (row.timing.calls, len(row.values)) == (calls, samples)
    assert row.timing.ended_ns - row.timing.began_ns == seconds * SECOND_NS


def test_device_time_and_the_time_to_issue_are_apart(world):
    row = row_of(world, timed_context(world, events=True), lambda: work(world, 5 * MS, host_ns=MS))
    assert set(row.timing.issue_ns) == {MS}
    assert 0.005 in row.values


def test_the_device_does_not_idle_between_the_samples_of_a_block(world):
    context = timed_context(world, events=True)
    row_of(world, context, lambda: work(world, 5 * MS))
    journal = "".join({"record": "r", "synchronize": "s", "elapsed": "e"}.get(word, "") for word in world.journal)
    assert "rrrrrrrrs" in journal  # four samples of 5 ms are a block


def test_what_comes_before_a_sample_is_not_timed_and_makes_it_a_single_call(world):
    flushes = []

    def flush():
        flushes.append(1)
        world.launch(20 * MS)

    row = row_of(world, timed_context(world, events=True), lambda: work(world, 10_000, before=flush))
    assert row.timing.calls == 1 and set(row.values) == {1e-5}
    assert len(flushes) > len(row.values)


def test_short_samples_that_cannot_be_batched_are_not_too_many(world):
    row = row_of(world, timed_context(world, seconds=5.0), lambda: work(world, 10_000, before=lambda: None))
    assert row.timing.calls == 1 and 300 <= len(row.values) < 400


def test_the_warm_up_ends_when_it_has_settled_or_at_its_cap(world):
    steady = row_of(world, timed_context(world, warmup_cap_seconds=1.0), lambda: work(world, 5 * MS))
    assert steady.timing.settled

    ever_slower = row_of(world, timed_context(world), lambda: work(world, lambda call: MS * call))
    assert not ever_slower.timing.settled


def test_the_output_of_the_last_timed_call_is_what_is_checked(world):
    seen = []
    row = row_of(world, timed_context(world), lambda: work(world, 5 * MS, check=lambda out: seen.append(out) or {}))
    assert seen == [row.timing.warmup_calls + len(row.values)]


def test_a_wrong_output_makes_the_row_invalid_and_its_samples_are_kept(world):
    def wrong(_output):
        raise WrongOutput("2 of 3 are wrong")

    context = timed_context(world)
    with context.measured():
        row = context.timed_row("thing", {}, lambda: work(world, 5 * MS, check=wrong))
        context.timed_row("thing", {}, lambda: work(world, 5 * MS))
    assert (row.status, row.problem) == ("invalid", "2 of 3 are wrong")
    assert len(row.values) >= 30


@pytest.mark.parametrize(
    ("error", "status", "problem"),
    [
        (MemoryError("no room"), "out_of_memory", "MemoryError: no room"),
        (RuntimeError("CUDA out of memory. Tried\nmore"), "out_of_memory", "RuntimeError: CUDA out of memory. Tried"),
        (Unsupported("no fp8 here"), "unsupported", "no fp8 here"),
        (NotImplementedError(), "unsupported", "NotImplementedError: NotImplementedError"),
        (
            RuntimeError("'mm' not implemented for 'Half'"),
            "unsupported",
            "RuntimeError: 'mm' not implemented for 'Half'",
        ),
        (ValueError("what"), "error", "ValueError: what"),
    ],
)
@pytest.mark.parametrize("where", ["prepare", "call"])
def test_a_row_that_fails_says_so_and_the_next_one_runs(world, error, status, problem, where):
    fail = raising(error)

    def prepare():
        return fail() if where == "prepare" else Timed(call=fail, check=dict)

    context = timed_context(world)
    with context.measured():
        bad = context.timed_row("thing", {"size": 1}, prepare)
        good = context.timed_row("thing", {"size": 2}, lambda: work(world, 5 * MS))
    assert (bad.status, bad.problem, bad.values) == (status, problem, ())
    assert good.status == "ok"
    assert world.of(RowMeasured) == [bad, good]


def raising(error):
    def prepare():
        raise error

    return prepare


@pytest.mark.parametrize(
    ("measure", "kind", "message"),
    [
        (lambda context: context.timed_row("thing", {}, raising(Unsupported("no fp8"))), Unsupported, "no fp8"),
        (lambda context: context.timed_row("thing", {}, raising(ValueError("bad"))), RuntimeError, "ValueError: bad"),
        (lambda context: context.row("thing", {}, [1.0], "bytes", "too many"), RuntimeError, "too many"),
    ],
)
def test_a_run_in_which_no_row_could_be_measured_fails(measure, kind, message):
    context = timed_context(World())
    with pytest.raises(kind, match=f"no row could be measured; the first: {message}"), context.measured():
        measure(context)


def test_alternatives_take_turns_and_one_that_fails_does_not_stop_the_other(world):
    order = []

    def alternative(name, device_ns):
        def call():
            order.append(name)
            world.launch(device_ns)

        return {"library": name}, lambda: Timed(call=call, check=lambda _output: {})

    context = timed_context(world)
    broken = ({"library": "c"}, raising(Unsupported("no c")))
    with context.measured():
        rows = context.timed_rows("thing", [alternative("a", 10 * MS), broken, alternative("b", 20 * MS)])
    assert [row.status for row in rows] == ["ok", "unsupported", "ok"]
    assert [row.values[0] for row in rows if row.values] == [0.01, 0.02]
    assert "aabbaaaabbaa" in "".join(order)  # a block is 20 ms


def test_a_row_needs_the_values_that_say_how_long():
    context = make_context(World(), kind="base", config={})
    with pytest.raises(RuntimeError, match=r"\[values.measure\]"):
        context.timed_row("thing", {}, lambda: None)


def test_a_precision_that_the_adapter_lacks_is_unsupported():
    context = timed_context(World())
    with pytest.raises(Unsupported, match="vendor spy does not support precision tf32; it has: fp32"):
        context.use_precision("tf32")


def test_one_device_is_measured_alone():
    assert list(timed_context(World()).turns()) == ["single"]


def test_all_devices_begin_the_samples_of_every_row_at_the_same_time(monkeypatch):
    """Also those that have none: the others wait for them."""
    world, rules = World(), MeasureRules(0.1, 30, 0.02, 0.05)
    met_ns = []

    class TwoRanks(Ranks):
        def meet(self):
            world.host(50 * MS)  # the other one comes later
            met_ns.append(world.now_ns)

    monkeypatch.setattr(worker_turns, "max_over_ranks", lambda *_: 1.0)
    table = RowTable(SpyBackend(world), "cpu", world.clock, rules, TwoRanks(0, 2, "cpu"), world.write)
    began = {}
    for devices in table.turns(local_rank=0):
        (row,) = table.time("thing", [({}, lambda: work(world, 5 * MS))], together=False)
        began[devices] = row.timing.began_ns
        (failed,) = table.time("thing", [({}, lambda: 1 // 0)], together=False)
        assert failed.status == "error"
    assert len(met_ns) == 2 + 1 + 2 + 1  # before each turn, before the rows of `all`, at the end
    assert began["all"] == met_ns[3] and began["single"] not in met_ns


@pytest.mark.parametrize(
    ("values", "problem", "status"),
    [([1.0], "", "ok"), ([1.0], "more than there is", "invalid"), ([], "there is none", "error")],
)
def test_a_row_that_is_not_timed_has_a_status_by_its_values_and_its_problem(world, values, problem, status):
    context = make_context(world, kind="base")
    with context.measured():
        context.row("other", {"size": 1}, [2.0], "bytes")
        context.row("thing", {"size": 1}, values, "bytes", problem)
    assert [(event.status, event.problem) for event in world.of(RowMeasured)] == [("ok", ""), (status, problem)]


def test_the_context_tells_of_the_devices_memory():
    context = make_context(World(), kind="base")
    assert context.memory_bytes() is None and context.has_own_memory()
    assert context.is_out_of_memory(MemoryError()) and not context.is_out_of_memory(ValueError("wrong"))


def test_each_alternative_has_its_surroundings_around_its_own_blocks_alone():
    world, log = World(), []

    @contextlib.contextmanager
    def within(name):
        log.append(f"{name} opens")
        yield
        log.append(f"{name} closes")

    def prepare(name):
        timed = work(world, 5 * MS, within=lambda: within(name))
        return msgspec.structs.replace(timed, call=lambda: (log.append(name), timed.call())[1])

    context = timed_context(world)
    with context.measured():
        context.timed_rows("thing", [({"which": name}, lambda name=name: prepare(name)) for name in "ab"])
    inside = ""
    for entry in log:
        name, _, event = entry.partition(" ")
        assert inside == ("" if event == "opens" else name), log
        inside = name if event != "closes" else ""
    assert log.count("a opens") == log.count("a closes") > 3

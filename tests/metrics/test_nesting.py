"""Any stream that a worker can write keeps p_whole <= p_train <= p_core."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_builders import MODEL, make_job, metrics_of, rank_file, record_of

from flagperf.events import SpanBegan, SpanEnded, StepFinished, WarmupEnded

MS = 1_000_000
moments = st.integers(0, 50 * MS)


class Move(msgspec.Struct, frozen=True):
    """What one rank does in one step: waits, queues work on the device, and perhaps logs and evaluates after it."""

    wait_ns: int
    host_ns: int
    device_ns: int
    samples: int
    tokens: int
    padded_tokens: int
    log_ns: int
    evaluation_ns: int


moves = st.builds(
    Move,
    wait_ns=moments,
    host_ns=moments,
    device_ns=st.integers(1, 80 * MS),
    samples=st.integers(0, 4),
    tokens=st.integers(0, 100),
    padded_tokens=st.integers(0, 100),
    log_ns=st.just(0) | moments,
    evaluation_ns=st.just(0) | moments,
)


def simulate(rank, moves, warmup_steps, start_ns):
    """A worker with timing events: the device runs behind the host, also through the next step's wait."""
    host = device = start_ns
    events = [MODEL, SpanBegan(start_ns, "training")]
    for number, move in enumerate(moves, start=1):
        host += move.wait_ns
        began_ns, device = host, max(host, device) + move.device_ns
        host += move.host_ns
        events.append(
            StepFinished(
                host,
                step=number,
                began_ns=began_ns,
                compute_ns=move.device_ns,
                wait_ns=move.wait_ns,
                work={"samples": move.samples, "tokens": move.tokens, "padded_tokens": move.padded_tokens},
            )
        )
        for name, length_ns in (("logging", move.log_ns), ("evaluation", move.evaluation_ns)):
            if length_ns:
                host = max(host, device)
                events.append(SpanEnded(host + length_ns, name, began_ns=host, step=number))
                host += length_ns
        if number == warmup_steps:
            host = max(host, device)
            events.append(WarmupEnded(host, number))
    return rank_file(*events, SpanEnded(max(host, device), "training", 0, 0), rank=rank)


@st.composite
def runs(draw):
    num_ranks = draw(st.integers(1, 3))
    num_steps = draw(st.integers(1, 24))
    warmup_steps = draw(st.integers(0, num_steps - 1))
    ranks = [draw(st.lists(moves, min_size=num_steps, max_size=num_steps)) for _ in range(num_ranks)]
    pace = draw(st.sampled_from([1, 20]))
    ranks = [[_paced(move, pace if n < warmup_steps else 1) for n, move in enumerate(rank)] for rank in ranks]
    starts = [draw(moments) for _ in ranks]
    return ranks, warmup_steps, starts


def _paced(move, factor):
    """Slow warm-up: compilation, first touches."""
    return msgspec.structs.replace(move, device_ns=move.device_ns * factor, host_ns=move.host_ns * factor)


def measured(ranks, warmup_steps, starts):
    files = [simulate(rank, moves, warmup_steps, starts[rank]) for rank, moves in enumerate(ranks)]
    return metrics_of(make_job([len(ranks)], warmup_steps, peaks=()), record_of(*files))


@given(runs())
def test_the_three_throughputs_are_nested(run):
    metrics = measured(*run)
    values = [metrics[name].value for name in ("p_whole", "p_train", "p_core")]
    if any(move.samples for rank in run[0] for move in rank[run[1] :]):
        assert values[0] <= values[1] <= values[2]
    else:
        assert values == [None] * 3


@given(runs())
def test_samples_and_tokens_are_conserved(run):
    ranks, warmup_steps, _ = run
    metrics = measured(*run)
    kept = [move for rank in ranks for move in rank[warmup_steps:]]
    tokens, positions = sum(m.tokens for m in kept), sum(m.tokens + m.padded_tokens for m in kept)
    assert metrics["samples_kept"].value == sum(move.samples for move in kept)
    assert metrics["steps_kept"].value + metrics["steps_dropped"].value == len(ranks[0])
    if tokens:
        per_device, span = metrics["token/p/s"].value, metrics["token/p/s"].inputs["seconds"]
        assert per_device * len(ranks) * span == pytest.approx(tokens)
    if positions:
        assert metrics["padding_ratio"].value == pytest.approx(1 - tokens / positions)


@given(runs())
def test_p_whole_all_counts_all_steps_over_all_of_training(run):
    metrics = measured(*run)
    samples = sum(move.samples for rank in run[0] for move in rank)
    if samples:
        assert metrics["p_whole_all"].value * metrics["train_time"].value == pytest.approx(samples)


@given(runs())
def test_shares_are_shares_and_intervals_hold_their_value(run):
    metrics = measured(*run)
    assert 0 <= metrics["data_wait_share"].value <= 1
    assert metrics["step_time_p50"].value <= metrics["step_time_p90"].value <= metrics["step_time_p99"].value
    for metric in metrics.values():
        if metric.interval:
            assert metric.interval.low <= metric.value <= metric.interval.high

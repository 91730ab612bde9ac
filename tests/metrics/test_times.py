"""Times of a job and the load of its hosts."""

import msgspec
import pytest
from metric_builders import (
    COMMAND,
    GIB,
    began,
    clock,
    ended,
    make_job,
    metrics_of,
    ns,
    parent_file,
    rank_file,
    record_of,
    started,
    step,
    steps_of_a_second,
    succeeded,
)

from flagperf.api import Reading
from flagperf.event_files import EventFile
from flagperf.events import CpuUse, ProbeStarted, Sampled, WorkersEnded, WorkersLaunched


def rank_of_node(rank, node_index, begin, **changes):
    """A second of training."""
    events = began(begin), step(1, begin, begin + 1), ended(begin + 1)
    return EventFile((started(rank, node_index, **changes), *events, succeeded()))


def two_nodes(parent, *ranks):
    files = ranks or [rank_of_node(rank, rank, 110) for rank in (0, 1)]
    return metrics_of(make_job([1, 1]), record_of(*files, parent=parent))


def test_e2e_time_is_from_the_first_launch_to_the_last_end():
    """Launched at 1 and 3, ended at 41 and 36: 40 s on the parent's clock."""
    assert two_nodes(parent_file((1, 41), (3, 36)))["e2e_time"].value == 40.0


def test_init_time_is_of_the_slowest_node_and_its_last_rank():
    """Node 0 is launched at 101 of its clock and begins at 110; node 1 at 103, its ranks begin at 110 and 115: 12 s."""
    ranks = [rank_of_node(0, 0, 110), rank_of_node(1, 1, 110), rank_of_node(2, 1, 115)]
    metrics = metrics_of(make_job([1, 2]), record_of(*ranks, parent=parent_file((1, 50), (3, 50))))
    assert metrics["init_time"].value == 12.0
    assert metrics["init_time"].inputs == {"per_node": {"0": 9.0, "1": 12.0}}


def test_init_time_never_mixes_clocks_of_two_machines():
    """The nodes' clocks are 5000 s apart, and it does not show."""
    parent = EventFile(
        (
            WorkersLaunched(ns(1), 0, ns(101), COMMAND),
            WorkersLaunched(ns(1), 1, ns(5101), COMMAND),
            WorkersEnded(ns(9), 0, ns(109), 0),
            WorkersEnded(ns(9), 1, ns(5109), 0),
        )
    )
    metrics = two_nodes(parent, rank_of_node(0, 0, 103), rank_of_node(1, 1, 5104))
    assert metrics["init_time"].value == 3.0


def test_ranks_of_one_node_with_two_clocks_are_refused():
    other = started(1).clock
    ranks = [rank_of_node(0, 0, 110), rank_of_node(1, 0, 110, clock=msgspec.structs.replace(other, boot_id="x"))]
    metric = metrics_of(make_job([2]), record_of(*ranks, parent=parent_file((1, 50))))["init_time"]
    assert (metric.value, metric.reason) == (None, "invalid_telemetry")
    assert "2 different machines" in metric.detail


def test_training_before_the_launch_is_refused():
    metrics = two_nodes(parent_file((1, 41), (3, 36)), rank_of_node(0, 0, 110), rank_of_node(1, 1, 102))
    assert metrics["init_time"].reason == "invalid_telemetry"
    assert metrics["e2e_time"].value == 40.0


@pytest.mark.parametrize(
    ("parent", "reason", "word"),
    [
        (EventFile(()), "run_failed", "no launch of the workers of nodes 0, 1"),
        (parent_file((1, 41)), "run_failed", "no launch of the workers of node 1"),
        (EventFile(parent_file((1, 41), (3, 36)).events[:4]), "run_failed", "no end of the workers of node 1"),
        (parent_file((1, 41), (3, 36), returncode=1), "run_failed", "nodes 0, 1 ended with a non-zero exit code"),
        (parent_file((9, 2), (9, 3)), "invalid_telemetry", "before the first were launched"),
    ],
)
def test_e2e_time_without_a_whole_parent_record(parent, reason, word):
    metric = two_nodes(parent)["e2e_time"]
    assert (metric.value, metric.reason) == (None, reason)
    assert word in metric.detail


def test_e2e_time_of_a_run_with_a_missing_rank():
    metrics = two_nodes(parent_file((1, 41), (3, 36)), rank_of_node(0, 0, 110))
    assert metrics["e2e_time"].reason == "run_failed"
    assert metrics["init_time"].detail == "0 of 1 ranks of node 1 began training"


def test_a_torn_parent_file_is_marked():
    parent = msgspec.structs.replace(parent_file((1, 41), (3, 36)), torn=True)
    assert two_nodes(parent)["e2e_time"].marks == ("torn_record",)


# --- what else the cores of a host did --------------------------------------------------------------------------------


def probe_file(*uses, node_index=0, boot_id="boot-0"):
    """Samples at 0, 10, 20 ... s; of each how long the cores were busy, and with our own processes."""
    start = ProbeStarted(0, 1, clock(boot_id), node_index=node_index, vendor="cpu", probe="pss", interval_seconds=10.0)
    samples = [
        Sampled(ns(10 * index), (Reading("card-0", GIB, 16 * GIB),), cpu=CpuUse(4, *use))
        if use
        else Sampled(ns(10 * index), (Reading("card-0", GIB, 16 * GIB),))
        for index, use in enumerate(uses)
    ]
    return EventFile((start, *samples))


def others(*files, job=None):
    return metrics_of(job or make_job([1] * len(files)), record_of(samples=files))["cpu_others"]


def test_others_are_what_the_cores_did_beyond_our_own_work():
    """In 20 s four cores worked 60 s, 44 of them for us: 16 / 20 / 4."""
    metric = others(probe_file((1000, 5), (1020, 20), (1060, 49)))
    assert metric.value == pytest.approx(0.2)
    assert metric.inputs == {"cores": 4}


def test_counts_that_do_not_fit_each_other_exactly_are_not_below_0():
    assert others(probe_file((0, 0), (40, 41))).value == 0.0


def test_nodes_of_one_machine_are_not_each_others_others():
    """Both see 4 cores busy for 40 s, of which each node's own are 20 s."""
    first, second = (probe_file((0, 0), (40, 20), node_index=index) for index in range(2))
    assert others(first, second).value == 0.0
    elsewhere = probe_file((0, 0), (40, 20), node_index=1, boot_id="boot-1")
    assert others(first, elsewhere).value == pytest.approx(0.5)


@pytest.mark.parametrize("uses", [(), ((1, 1),), (None, None), ((1, 1), None)])
def test_fewer_than_two_samples_say_nothing(uses):
    assert others(probe_file(*uses)).reason == "not_measured"


@pytest.mark.parametrize(
    ("busy", "scope", "marks"),
    [(20, "host", ()), (23.9, "host", ()), (24.1, "host", ("busy_host",)), (40, "device", ())],
)
def test_a_busy_host_marks_the_speed_of_cpu_workers(busy, scope, marks):
    """10 s of four cores are 40 core seconds, of which 20 were ours: 4 more are 10 %."""
    worker = rank_file(began(0), *steps_of_a_second(3), ended(3))
    record = record_of(worker, samples=[probe_file((0, 0), (busy, 20))])
    metrics = metrics_of(make_job(memory_scope=scope), record)
    assert metrics["p_core"].marks == metrics["step_time_p50"].marks == marks
    assert metrics["mem_used"].marks == ()

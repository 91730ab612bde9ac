import pytest
from metric_builders import GIB, began, clock, ended, make_job, metrics_of, ns, rank_file, record_of, steps_of_a_second

from flagperf.api import Reading
from flagperf.event_files import EventFile
from flagperf.events import CpuUse, ProbeStarted, Sampled


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

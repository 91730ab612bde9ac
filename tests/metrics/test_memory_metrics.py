import msgspec
import pytest
from metric_builders import (
    GIB,
    MIB,
    make_job,
    metrics_of,
    parent_file,
    record_of,
    sample,
    sample_file,
    started,
    succeeded,
)

from flagperf.api import Reading
from flagperf.events import EventFile, ProbeEnded, Sampled, SampleMissed

CARD = ("mem_used", "mem_total", "mem_baseline")


def worker(rank=0, reserved=None, **changes):
    return EventFile((started(rank, **changes), succeeded(reserved)))


def run(*samples, job=None, workers=(), parent=None):
    files = [item if isinstance(item, EventFile) else sample_file(*item) for item in samples]
    record = record_of(*workers, samples=files, parent=parent or EventFile(()))
    return metrics_of(job or make_job(), record)


def card(*gibs, **changes):
    """card-0 at seconds 10, 20 ..."""
    return [sample(10.0 * (index + 1), {"card-0": gib * GIB}, **changes) for index, gib in enumerate(gibs)]


def test_used_is_the_largest_sample_of_the_fullest_device():
    samples = [
        sample(0, {"card-0": 12 * GIB, "card-1": 2 * GIB}, baseline=True),
        sample(10, {"card-0": 5 * GIB, "card-1": 4 * GIB}),
        sample(30, {"card-0": 6 * GIB, "card-1": 9 * GIB}, total=24 * GIB),
        sample(40, {"card-0": 7 * GIB, "card-1": 1 * GIB}),
    ]
    metrics = run(samples, job=make_job([2]), parent=parent_file((-95, -57)))
    assert metrics["mem_used"].value == 9 * GIB
    assert metrics["mem_total"].value == 24 * GIB
    assert metrics["mem_baseline"].value == 2 * GIB
    # workers ran from 5 to 43 s: gaps 5, 20, 10, 3
    assert metrics["mem_used"].inputs == {
        "node_index": 0,
        "device_id": "card-1",
        "t_ns": 30_000_000_000,
        "probe": "smi",
        "interval_seconds": 10.0,
        "largest_gap_seconds": 20.0,
        "per_device": {"0/card-0": 7 * GIB, "0/card-1": 9 * GIB},
    }


def test_time_without_samples_at_the_edges_is_a_gap():
    """Launched at 5, sampled at 10 and 20, ended at 50."""
    metrics = run(card(1, 2), parent=parent_file((-95, -50)))
    assert metrics["mem_used"].inputs["largest_gap_seconds"] == 30.0


def test_equal_ids_on_two_nodes_are_two_devices():
    first, second = sample_file(*card(3)), sample_file(*card(8), node_index=1)
    metric = run(first, second, job=make_job([1, 1]))["mem_used"]
    assert metric.value == 8 * GIB
    assert metric.inputs["per_device"] == {"0/card-0": 3 * GIB, "1/card-0": 8 * GIB}
    assert metric.inputs["node_index"] == 1


def test_cards_outside_the_job_do_not_count():
    metrics = run([sample(10, {"card-0": GIB, "card-7": 15 * GIB})])
    assert metrics["mem_used"].value == GIB


def test_no_samples():
    for samples in ([], [[]], [[sample(0, {"card-0": GIB}, baseline=True)]]):
        metrics = run(*samples)
        assert {(metrics[name].value, metrics[name].reason) for name in CARD} == {(None, "not_measured")}
        assert "device card-0 of node 0" in metrics["mem_used"].detail


def test_a_device_that_never_answered_is_named_with_its_reason():
    unread = Sampled(10, (Reading("card-0", 5), Reading("card-1", missing={"used_bytes": "driver busy"})))
    metric = run([unread], job=make_job([2]))["mem_used"]
    assert metric.reason == "not_measured"
    assert metric.detail == "no memory was sampled of device card-1 of node 0: driver busy"


def test_missed_samples_give_their_reason():
    assert run([SampleMissed(5, "tool not found")])["mem_used"].detail.endswith(": tool not found")


def test_missing_is_not_zero():
    metrics = run([Sampled(10, (Reading("card-0", used_bytes=5),))])
    assert metrics["mem_used"].value == 5
    assert (metrics["mem_total"].reason, metrics["mem_baseline"].reason) == ("not_measured", "not_measured")


def test_total_comes_from_another_reading_where_the_peak_has_none():
    metrics = run([sample(10, {"card-0": GIB}), sample(20, {"card-0": 2 * GIB}, total=None)])
    assert metrics["mem_total"].value == 16 * GIB


@pytest.mark.parametrize("samples", [card(3, 17), card(-1, 3), card(0, 0), card(17, 3)])
def test_impossible_readings_are_refused(samples):
    metric = run(samples)["mem_used"]
    assert (metric.value, metric.reason) == (None, "invalid_telemetry")
    assert "card-0" in metric.detail


def test_used_above_total_on_any_card_is_refused():
    samples = [Sampled(10, (Reading("card-0", 50, 80), Reading("card-1", 40, 32)))]
    assert "card-1" in run(samples, job=make_job([2]))["mem_used"].detail


def test_slots_of_a_host_share_one_pool():
    """Two slots of 9 GiB do not fit in 16 GiB of one host, but in two cards of 16 GiB each."""
    samples = [sample(10, {"card-0": 9 * GIB, "card-1": 9 * GIB})]
    assert run(samples, job=make_job([2]))["mem_used"].value == 9 * GIB
    metric = run(samples, job=make_job([2], memory_scope="host"))["mem_used"]
    assert metric.reason == "invalid_telemetry"
    assert "together used 19327352832 of 17179869184 bytes" in metric.detail
    fits = [sample(10, {"card-0": 9 * GIB, "card-1": 7 * GIB}), sample(20, {"card-0": 1, "card-1": 9 * GIB})]
    assert run(fits, job=make_job([2], memory_scope="host"))["mem_total"].value == 16 * GIB


# --- allocator -----------------------------------------------------------------------------------------------------


def test_allocator_and_remainder_are_of_the_rank_that_reserved_most():
    """Rank 1 reserved 6 GiB of the 8 that its card says; the fullest card is the other one."""
    samples = [sample(10, {"card-0": 9 * GIB, "card-1": 8 * GIB})]
    metrics = run(samples, job=make_job([2]), workers=[worker(0, 5 * GIB), worker(1, 6 * GIB)])
    assert metrics["mem_used"].value == 9 * GIB
    assert metrics["mem_allocator"].value == 6 * GIB
    assert metrics["mem_remainder"].value == 2 * GIB
    assert metrics["mem_remainder"].inputs == {"rank": 1, "node_index": 0, "device_id": "card-1"}


@pytest.mark.parametrize(("excess", "reason"), [(64 * MIB, None), (64 * MIB + 1, "invalid_telemetry")])
def test_a_card_may_say_at_most_64_mib_less_than_the_allocator(excess, reason):
    metrics = run(card(4), workers=[worker(0, 4 * GIB + excess)])
    assert metrics["mem_used"].reason == metrics["mem_remainder"].reason == reason
    assert metrics["mem_remainder"].value == (None if reason else -64 * MIB)
    assert metrics["mem_allocator"].value == 4 * GIB + excess


def test_a_rank_without_a_card_says_nothing_against_one():
    metrics = run(card(4), workers=[worker(0, 8 * GIB, mapping="none")])
    assert metrics["mem_used"].value == 4 * GIB
    assert metrics["mem_remainder"].reason == "invalid_telemetry"


def test_unverified_mapping_marks_memory():
    metrics = run([sample(0, {"card-0": 1}, baseline=True), *card(4)], workers=[worker(0, GIB, mapping="none")])
    for name in (*CARD, "mem_allocator", "mem_remainder"):
        assert metrics[name].marks == ("unverified_mapping",)


def test_remainder_of_a_card_that_was_not_sampled():
    metrics = run(card(4), workers=[worker(0, GIB, device_id="card-5")])
    assert metrics["mem_remainder"].reason == "not_measured"


def test_vendor_without_an_allocator():
    metrics = run(card(0), job=make_job(has_allocator=False), workers=[worker(0)])
    assert metrics["mem_allocator"].reason == metrics["mem_remainder"].reason == "not_applicable"


def test_allocator_that_was_not_recorded():
    metrics = run(card(4), workers=[worker(0, None)])
    assert metrics["mem_allocator"].reason == metrics["mem_remainder"].reason == "not_measured"
    assert run(card(4))["mem_allocator"].reason == "run_failed"
    assert run(workers=[worker(0, GIB)])["mem_remainder"].reason == "not_measured"


def test_memory_of_a_failed_run_is_still_known():
    assert run(card(4))["mem_used"].value == 4 * GIB


# --- probe ---------------------------------------------------------------------------------------------------------


def test_probe_cost_is_of_the_dearest_node():
    """0.1 of 10 s and 0.6 of 20 s."""
    files = [
        sample_file(node_index=0, cost=ProbeEnded(0, 0.1, 10)),
        sample_file(node_index=1, cost=ProbeEnded(0, 0.6, 20)),
    ]
    metric = run(*files, job=make_job([1, 1]))["probe_cost"]
    assert metric.value == pytest.approx(0.03)
    assert metric.inputs["per_node"] == pytest.approx({"0": 0.01, "1": 0.03})


def test_probe_that_did_not_end():
    metric = run(sample_file(cost=ProbeEnded(0, 0.1, 10)), job=make_job([1, 1]))["probe_cost"]
    assert (metric.reason, metric.detail) == ("not_measured", "the probe of node 1 did not record its end")


def test_probe_that_took_no_time():
    assert run(sample_file(cost=ProbeEnded(0, 0.1, 0.0)))["probe_cost"].reason == "invalid_telemetry"


def test_a_torn_sample_file_is_marked():
    torn = msgspec.structs.replace(sample_file(*card(4)), torn=True)
    assert run(torn)["mem_used"].marks == ("torn_record",)

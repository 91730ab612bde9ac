import msgspec
import pytest
from metric_builders import (
    GIB,
    MIB,
    began,
    clock,
    make_job,
    metrics_of,
    ns,
    parent_file,
    record_of,
    sample,
    sample_file,
    started,
    succeeded,
)

from flagperf.api import Reading
from flagperf.event_files import EventFile
from flagperf.events import ProbeEnded, ProbeFailed, ProbeStarted, Sampled, SampleMissed

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
    assert metrics["mem_baseline"].inputs["per_device"] == {"0/card-0": 12 * GIB, "0/card-1": 2 * GIB}
    # workers ran from 5 to 43 s: gaps 5, 20, 10, 3
    assert metrics["mem_used"].inputs == {
        "node_index": 0,
        "device_id": "card-1",
        "t_ns": 30_000_000_000,
        "peak_seconds": None,
        "probe": "smi",
        "interval_seconds": 10.0,
        "num_samples": 3,
        "largest_gap_seconds": 20.0,
        "per_device": {"0/card-0": 7 * GIB, "0/card-1": 9 * GIB},
    }


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
    assert metric.detail == "no memory was sampled on device card-1 of node 0: driver busy"


def test_total_and_baseline_that_could_not_be_read_have_their_reasons():
    unread = Reading("card-0", missing={"used_bytes": "driver asleep"})
    sized = Reading("card-0", 5, missing={"total_bytes": "not in this version", "power_watts": "no sensor"})
    metrics = run([Sampled(0, (unread,), baseline=True), Sampled(10, (sized,))])
    assert metrics["mem_total"].detail == "device card-0 of node 0 reported no total: not in this version"
    assert metrics["mem_baseline"].detail.endswith("was not read before the workers started: driver asleep")


def test_total_comes_from_another_reading_where_the_peak_has_none():
    metrics = run([sample(10, {"card-0": GIB}), sample(20, {"card-0": 2 * GIB}, total=None)])
    assert metrics["mem_total"].value == 16 * GIB


@pytest.mark.parametrize("samples", [card(3, 17), card(-1, 3), card(0, 0)])
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
    card = {"rank": 1, "node_index": 0, "device_id": "card-1"}
    assert metrics["mem_allocator"].inputs == {**card, "per_device": {"0/card-0": 5 * GIB, "0/card-1": 6 * GIB}}
    assert metrics["mem_remainder"].inputs == {**card, "per_device": {"0/card-0": 4 * GIB, "0/card-1": 2 * GIB}}


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


# --- where and when the peak was -----------------------------------------------------------------------------------


def trained(rank, began_at, **changes):
    return EventFile((started(rank, **changes), began(began_at), succeeded(0)))


def test_the_peak_has_its_card_and_its_time_since_training_began():
    """Training began at 12 and 14 s on the two ranks; card-1 was fullest at 50 s."""
    amounts = [(10, 1, 1), (30, 5, 6), (50, 5, 11), (70, 5, 6), (90, 2, 2)]
    samples = [sample(at, {"card-0": first * GIB, "card-1": second * GIB}) for at, first, second in amounts]
    metric = run(samples, job=make_job([2]), workers=[trained(0, 12), trained(1, 14)])["mem_used"]
    assert (metric.value, metric.inputs["device_id"], metric.inputs["peak_seconds"]) == (11 * GIB, "card-1", 38.0)


def test_times_of_two_machines_are_not_subtracted():
    elsewhere = clock("another-boot")
    metric = run(card(9), workers=[trained(0, 1, clock=elsewhere)])["mem_used"]
    assert metric.inputs["peak_seconds"] is None
    other_node = run(card(9), workers=[trained(0, 1, node_index=1)])["mem_used"]
    assert other_node.inputs["peak_seconds"] is None


# --- plausibility --------------------------------------------------------------------------------------------------


def test_more_than_the_described_card_has_is_marked():
    """Cards are described with 16 GiB; 1 % is rounding."""
    fits, over = (run([sample(10, {"card-0": used}, total=32 * GIB)])["mem_used"] for used in (16 * GIB, 17 * GIB))
    assert (fits.value, fits.marks) == (16 * GIB, ())
    assert (over.value, over.marks) == (17 * GIB, ("over_capacity", "unverified_mapping"))


def test_the_pool_of_a_host_is_not_the_capacity_of_a_card():
    job = make_job(memory_scope="host")
    assert run([sample(10, {"card-0": 17 * GIB}, total=32 * GIB)], job=job)["mem_used"].marks == ()


@pytest.mark.parametrize("percent", [-1.0, 100.5, 6553.5])
def test_impossible_utilisation_marks_what_the_same_probe_read(percent):
    odd = Sampled(20, (Reading("card-0", GIB, 16 * GIB, utilisation_percent=percent),))
    metrics = run([*card(2), odd])
    assert metrics["mem_used"].marks == metrics["mem_total"].marks == ("implausible_utilisation",)


@pytest.mark.parametrize("percent", [None, 0.0, 100.0])
def test_possible_utilisation_is_no_mark(percent):
    assert run([Sampled(20, (Reading("card-0", GIB, utilisation_percent=percent),))])["mem_used"].marks == ()


# --- probes that fail ----------------------------------------------------------------------------------------------


def died(at, reason="the probe was killed by signal 9 (SIGKILL)"):
    return ProbeFailed(ns(at), reason)


def test_a_probe_that_died_beside_the_workers_spoils_the_cards_figures():
    """Workers ran from 5 to 50 s; the agent noticed at 22 s."""
    metrics = run([*card(1, 2), died(22)], workers=[worker(0, GIB)], parent=parent_file((-95, -50)))
    why = ("invalid_telemetry", "node 0: the probe was killed by signal 9 (SIGKILL)")
    assert {(metrics[name].reason, metrics[name].detail) for name in (*CARD, "mem_remainder")} == {why}
    assert metrics["mem_allocator"].value == GIB
    assert metrics["probe_cost"].reason == "not_measured"


def test_a_probe_that_died_before_its_first_sample_measured_nothing():
    for events in ([died(7, "no driver")], [sample(0, {"card-0": 1}, baseline=True), died(7, "no driver")]):
        metric = run(events, parent=parent_file((-95, -50)))["mem_used"]
        assert (metric.reason, metric.detail) == (
            "not_measured",
            "no memory was sampled on device card-0 of node 0: no driver",
        )


def test_a_probe_that_fails_after_the_workers_had_seen_all():
    metrics = run([*card(1, 2), died(51)], parent=parent_file((-95, -50)))
    assert metrics["mem_used"].value == 2 * GIB


def test_the_death_of_one_nodes_probe_spoils_the_maximum_over_all():
    first, second = sample_file(*card(3)), sample_file(*card(8), died(15), node_index=1)
    metric = run(first, second, job=make_job([1, 1]), parent=parent_file((-95, -50), (-95, -50)))["mem_used"]
    assert (metric.reason, metric.detail[:7]) == ("invalid_telemetry", "node 1:")


@pytest.mark.parametrize(
    ("silence", "until", "reason", "marks"),
    [
        (150.0, 1000.0, None, ()),  # 15 intervals of 10 s
        (151.0, 1000.0, "invalid_telemetry", ()),
        (151.0, 3021.0, None, ("telemetry_gap",)),  # less than 5 % of 3021 s
        (160.0, 3021.0, "invalid_telemetry", ()),
    ],
)
def test_a_silent_probe_is_refused_when_the_gap_is_long_and_a_fair_share_of_the_run(silence, until, reason, marks):
    moments = [0.0, silence, *range(round(silence) + 10, round(until), 10)]
    samples = [sample(at, {"card-0": GIB}) for at in moments]
    metric = run(samples, parent=parent_file((-100, until - 100)))["mem_used"]
    assert (metric.reason, metric.marks) == (reason, marks)
    if reason:
        assert metric.detail == f"no sample of device card-0 of node 0 for {silence} of {until} s"


def test_a_silence_until_the_end_counts_and_says_why():
    missed = [SampleMissed(ns(at), "the tool did not answer") for at in range(30, 400, 10)]
    metric = run([*card(1, 2), *missed], parent=parent_file((-95, 300)))["mem_used"]
    assert metric.detail == "no sample of device card-0 of node 0 for 380.0 of 395.0 s: the tool did not answer"


def test_what_a_reading_lacks_beside_its_figure_is_no_reason_for_a_gap():
    bare = {"power_watts": "unsupported"}
    samples = [Sampled(ns(at), (Reading("card-0", GIB, 16 * GIB, missing=bare),)) for at in (10, 20)]
    metric = run(samples, parent=parent_file((-95, 300)))["mem_used"]
    assert metric.detail == "no sample of device card-0 of node 0 for 380.0 of 395.0 s"


def test_a_few_late_samples_of_a_short_run_are_no_matter():
    """One second between samples, once 20 s on a busy machine, in a run of half a minute."""
    start = ProbeStarted(0, 1, clock(), node_index=0, vendor="acme", probe="smi", interval_seconds=1.0)
    samples = [sample(at, {"card-0": GIB}) for at in (1, 2, 22, 23)]
    metric = run(EventFile((start, *samples)), parent=parent_file((-100, -70)))["mem_used"]
    assert (metric.value, metric.marks) == (GIB, ())


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


HOST = {"memory_scope": "host", "has_allocator": False}


def host_samples(*figures, why="the worker of local rank 1 has ended"):
    """Two slots at seconds 10, 20 ...; the second has no figure where it says None."""
    return [
        Sampled(
            ns(10.0 * (index + 1)),
            (
                Reading("card-0", first * GIB, 16 * GIB),
                Reading("card-1", second and second * GIB, 16 * GIB, missing={} if second else {"used_bytes": why}),
            ),
        )
        for index, (first, second) in enumerate(figures)
    ]


def test_a_rank_that_ended_before_the_others_keeps_its_peak_and_is_no_gap():
    """Launched at 5, ended at 5005: the second rank was gone after 20, and the probe saw that."""
    figures = [(1, 2), (1, 3), *((1, None),) * 498]
    metric = run(host_samples(*figures), job=make_job([2], **HOST), parent=parent_file((-95, 4905)))["mem_used"]
    assert (metric.value, metric.inputs["per_device"]) == (3 * GIB, {"0/card-0": 1 * GIB, "0/card-1": 3 * GIB})
    assert (metric.marks, metric.inputs["num_samples"], metric.inputs["largest_gap_seconds"]) == ((), 2, 10.0)

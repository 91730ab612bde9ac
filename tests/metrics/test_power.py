"""Power and energy from samples that a person can check by hand. The window is 100 s long, from 10 to 110 s."""

import msgspec
import pytest
from metric_builders import began, ended, make_job, metrics_of, ns, rank_file, record_of, sample_file, step, warm

from flagperf.api import Reading
from flagperf.events import Sampled

NAMES = ("power_mean", "power_max", "energy", "energy_per_sample", "energy_per_token")


def run(read, devices=1, times=range(121), samples=50, tokens=0, boards=(), shared=()):
    """`read(second, card)` gives the fields of a card's reading at that second. `boards` are those of the cards,
    `shared` the figures that a board has for all its chips."""
    steps = [step(1, 0, 10, samples=1), warm(10, 1), step(2, 10, 110, samples=samples, tokens=tokens)]
    ranks = [rank_file(began(0), *steps, ended(110), rank=rank) for rank in range(devices)]
    cards = [f"card-{slot}" for slot in range(devices)]
    sampled = [Sampled(ns(at), tuple(Reading(card, 1 << 30, **read(at, card)) for card in cards)) for at in times]
    job = on_boards(make_job([devices], warmup_steps=1), boards)
    return metrics_of(job, record_of(*ranks, samples=[sample_file(*sampled, board_figures=shared)]))


def on_boards(job, boards):
    if not boards:
        return job
    replace, (node,) = msgspec.structs.replace, job.nodes
    chips = tuple(replace(device, board=board) for device, board in zip(node.devices, boards, strict=True))
    return replace(job, nodes=(replace(node, devices=chips),))


def test_constant_power_is_its_own_mean_and_energy_is_power_times_time():
    metrics = run(lambda _at, _card: {"power_watts": 300.0}, samples=50, tokens=1000)
    assert [metrics[name].value for name in NAMES] == [300.0, 300.0, 30_000.0, 600.0, 30.0]
    assert metrics["energy"].inputs["grade"] == "board sampled"
    assert metrics["energy"].unit == "J"


def test_a_ramp_is_integrated_by_trapezoids_with_interpolated_edges():
    """Power at s is s W, sampled every 3 s from 0 on: the window from 10 to 110 s holds (110^2 - 10^2) / 2 = 6000 J."""
    metrics = run(lambda at, _card: {"power_watts": float(at)}, times=[n * 1.5 for n in range(81)])
    assert metrics["energy"].value == pytest.approx(6000.0)
    assert metrics["power_max"].value == 109.5


def test_a_counter_is_used_where_the_card_has_one():
    """It counts 250 J a second; the samples say 260 W, 4 % more."""
    metrics = run(lambda at, _card: {"power_watts": 260.0, "energy_joules": 5000.0 + 250.0 * at})
    assert metrics["energy"].value == pytest.approx(25_000.0)
    assert metrics["energy"].inputs["grade"] == "board counter"
    assert metrics["energy"].marks == ()


def test_a_counter_that_contradicts_the_samples_marks_all_energies():
    metrics = run(lambda at, _card: {"power_watts": 300.0, "energy_joules": 250.0 * at})
    assert {metrics[name].marks for name in ("energy", "energy_per_sample")} == {("energy_mismatch",)}


def test_energies_of_all_cards_are_added_and_powers_are_of_one():
    metrics = run(lambda _at, card: {"power_watts": 200.0 if card == "card-0" else 400.0}, devices=2)
    assert metrics["energy"].value == pytest.approx(60_000.0)
    assert (metrics["power_mean"].value, metrics["power_max"].value) == (300.0, 400.0)
    assert metrics["power_max"].inputs["device_id"] == "card-1"


def test_what_two_chips_of_a_board_share_is_counted_once():
    """Two boards of 300 W and 500 W with two chips each, and a card of 100 W that has its board to itself."""
    watts = {"card-0": 300.0, "card-1": 300.0, "card-2": 500.0, "card-3": 500.0, "card-4": 100.0}
    boards = ("A", "A", "B", "B", "")
    metrics = run(lambda _at, card: {"power_watts": watts[card]}, 5, boards=boards, shared=("power_watts",))
    assert metrics["energy"].value == pytest.approx(90_000.0)
    assert metrics["energy"].inputs["per_device"] == {"0/A": 30_000.0, "0/B": 50_000.0, "0/card-4": 10_000.0}
    assert (metrics["power_mean"].value, metrics["power_max"].value) == (300.0, 500.0)
    assert {metrics[name].marks for name in NAMES[:4]} == {("whole_board",)}
    apart = run(lambda _at, card: {"power_watts": watts[card]}, 5, boards=boards)
    assert (apart["energy"].value, apart["energy"].marks) == (pytest.approx(170_000.0), ())


def test_a_counter_of_a_chip_is_not_held_against_the_power_of_its_board():
    def read(at, _card):
        return {"power_watts": 300.0, "energy_joules": 100.0 * at}

    metrics = run(read, 2, boards=("A", "A"), shared=("power_watts",))
    assert (metrics["energy"].value, metrics["energy"].marks) == (pytest.approx(20_000.0), ())


@pytest.mark.parametrize(
    ("times", "reason", "words"),
    [
        (range(0, 121, 2), "not_measured", "sampled 51 times in the measured window; energy needs 60"),
        ([*range(51), *range(55, 121)], "invalid_telemetry", "not sampled for 5.0 s of the measured window"),
    ],
)
def test_energy_needs_enough_samples_without_gaps(times, reason, words):
    metrics = run(lambda _at, _card: {"power_watts": 300.0}, times=times)
    assert (metrics["energy"].value, metrics["energy"].reason) == (None, reason)
    assert words in metrics["energy"].detail
    assert metrics["power_mean"].value == 300.0


def test_the_last_sample_may_lie_before_the_end_of_the_window():
    metrics = run(lambda _at, _card: {"power_watts": 300.0}, times=range(109))
    assert metrics["energy"].value == pytest.approx(30_000.0)


def test_a_counter_that_falls_is_no_counter():
    metrics = run(lambda at, _card: {"energy_joules": 1000.0 - at})
    assert metrics["energy"].reason == "invalid_telemetry"
    assert "decreased" in metrics["energy"].detail


def test_a_probe_without_power_gives_none():
    metrics = run(lambda _at, _card: {})
    assert {metrics[name].reason for name in (*NAMES, "utilisation_mean", "temperature_max", "throttled_share")} == {
        "not_measured"
    }
    words = "the probe read no power_watts of device card-0 of node 0 in the measured window"
    assert metrics["power_mean"].detail == words


def test_utilisation_temperature_and_throttling():
    def read(at, _card):
        throttled = ("heat",) if 20 <= at < 45 else ()
        return {"utilisation_percent": 90.0, "temperature_celsius": at / 2, "throttle_reasons": throttled}

    metrics = run(read)
    assert metrics["utilisation_mean"].value == pytest.approx(0.9)
    assert metrics["temperature_max"].value == 55.0
    assert metrics["throttled_share"].value == pytest.approx(25 / 101)
    assert metrics["throttled_share"].inputs["reasons"] == {"heat": 25}


def test_the_clock_is_averaged_over_the_window_and_the_cards():
    metrics = run(lambda _at, card: {"clock_mhz": 1200.0 if card == "card-0" else 1400.0}, devices=2)
    assert metrics["clock_mean"].value == pytest.approx(1300.0)


def test_a_utilisation_above_100_percent_is_refused():
    metrics = run(lambda _at, _card: {"utilisation_percent": 140.0})
    assert metrics["utilisation_mean"].reason == "invalid_telemetry"

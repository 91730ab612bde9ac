"""Power, energy and the like: in the notes of pages in both languages and on the card, where a run has them."""

import pytest
from report_builders import metrics, no_metric, recorded

from flagperf.messages import message
from flagperf.metrics.entry import Metric
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf_publish.pages.layouts import page

READ = {"power_mean": 312.44, "power_max": 398.6, "energy": 1_234_567.0, "utilisation_mean": 0.987}
UNITS = {"power_mean": "W", "power_max": "W", "energy": "J", "utilisation_mean": "share"}


def figures():
    found = {name: Metric(name, UNITS[name], name, "device", value) for name, value in READ.items()}
    why = message("power.not_read", figure="throttle_reasons", card="0000:05:00.0")
    return {**metrics(), **found, "throttled_share": no_metric("throttled_share", "not_measured", why)}


@pytest.mark.parametrize(
    ("lang", "lines"),
    [
        ("en", ["- Power", "Mean power: 312.4 W", "Energy: 1,234.6 kJ", "Device utilisation: 98.7%"]),
        ("zh", ["- 功率与能耗", "平均功率：312.4 W", "能耗：1,234.6 kJ", "设备利用率：98.7%"]),
    ],
)
def test_pages_list_what_was_read_and_nothing_else(lang, lines):
    text = page([recorded(figures=figures())], lang)
    assert all(line in text for line in lines)
    assert "Throttled" not in text and "降频" not in text


def test_the_card_has_it_too():
    text = to_terminal(run_report([recorded(figures=figures())]), width=200)
    assert "mean power" in text and "312.4 W" in text


def test_a_run_without_a_power_probe_says_nothing_of_it():
    assert "- Power" not in page([recorded()], "en")

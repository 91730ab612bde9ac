"""Power, energy, utilisation, temperature and throttling of the cards over the measured window.

Energy follows the rules in docs/metrics.md: the card's energy counter is preferred to integrated power samples, and
there must be enough samples without gaps. Otherwise the metric is absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from flagperf import units
from flagperf.kinds import Text
from flagperf.metrics.entry import CARD, Absent, DeviceKey, Finding, Formula, Found, MetricEntry, absent, card_name
from flagperf.metrics.memory import per_device
from flagperf.metrics.observed import Observed

if TYPE_CHECKING:
    from flagperf.metrics.node_record import Series

MIN_SAMPLES = 60
MAX_GAP_SECONDS = 3.0
MISMATCH = 0.05
"""Maximum relative difference between the energy counter and the integrated samples of one card."""


def of_series(field: str, formula: Callable[[Mapping[DeviceKey, Series], Observed], Finding]) -> Formula:
    def guarded(run: Observed) -> Finding:
        found = run.series(field)
        return found if isinstance(found, Absent) else _of_boards(formula(found, run), found)

    return guarded


def _of_boards(finding: Finding, cards: Mapping[DeviceKey, Series]) -> Finding:
    """With a mark where a figure is that of a board and not of a chip."""
    if isinstance(finding, Absent) or not any(one.is_of_board for one in cards.values()):
        return finding
    return msgspec.structs.replace(finding, marks=(*finding.marks, "whole_board"))


# --- power and energy -----------------------------------------------------------------------------------------------


def power_mean(cards: Mapping[DeviceKey, Series], _run: Observed) -> Finding:
    means = {card: one.mean for card, one in cards.items()}
    return _negative(cards) or Found(sum(means.values()) / len(means), _inputs(cards, means))


def power_max(cards: Mapping[DeviceKey, Series], _run: Observed) -> Finding:
    return _negative(cards) or _highest(cards)


def energy(run: Observed) -> Finding:
    """Energy of all cards in joules."""
    counted, sampled = run.series("energy_joules"), run.series("power_watts")
    if isinstance(counted, Absent) and isinstance(sampled, Absent):
        return sampled
    best = sampled if isinstance(counted, Absent) else counted
    assert not isinstance(best, Absent)
    problem = _rule_broken(best) or (_falling(best) if best is counted else _negative(best))
    if problem:
        return problem
    joules = {card: one.joules for card, one in best.items()}
    grade = "board counter" if best is counted else "board sampled"
    finding = Found(sum(joules.values()), {"grade": grade, **_inputs(best, joules)})
    if best is counted and not isinstance(sampled, Absent) and _contradicts(sampled, joules):
        finding = msgspec.structs.replace(finding, marks=("energy_mismatch",))
    return _of_boards(finding, best)


def energy_per(amount: str) -> Formula:
    """Energy per unit of `amount`, which is `samples` or `tokens`: the real ones of the kept steps."""

    def formula(run: Observed) -> Finding:
        joules = energy(run)
        if isinstance(joules, Absent):
            return joules
        if isinstance(run.window, Absent):  # a kind without steps
            return absent("not_applicable", f"power.no_{amount}")
        count = sum(run.window.per_step(amount))
        if not count:
            return absent("not_applicable", f"power.no_{amount}")
        inputs = {"energy": joules.value, "count": count, "grade": joules.inputs["grade"]}
        return Found(joules.value / count, inputs, marks=joules.marks)

    return formula


def _rule_broken(cards: Mapping[DeviceKey, Series]) -> Absent | None:
    for one in cards.values():
        if one.num_inside < MIN_SAMPLES:
            counts = {"count": one.num_inside, "needed": MIN_SAMPLES}
            return absent("not_measured", "power.few_samples", card=card_name(one.card), **counts)
        if one.largest_gap_seconds > MAX_GAP_SECONDS:
            spans = {"seconds": f"{one.largest_gap_seconds:.1f}", "allowed": f"{MAX_GAP_SECONDS:g}"}
            return absent("invalid_telemetry", "power.gap", card=card_name(one.card), **spans)
    return None


def _negative(cards: Mapping[DeviceKey, Series]) -> Absent | None:
    for one in cards.values():
        if one.lowest < 0:
            return absent("invalid_telemetry", "power.negative", card=card_name(one.card), value=one.lowest)
    return None


def _falling(cards: Mapping[DeviceKey, Series]) -> Absent | None:
    for one in cards.values():
        if one.falls:
            return absent("invalid_telemetry", "power.counter_fell", card=card_name(one.card))
    return None


def _contradicts(sampled: Mapping[DeviceKey, Series], joules: Mapping[DeviceKey, float]) -> bool:
    """Only where both are of the same cards, and sampled well enough. A board's power is not that of its chips."""
    if sampled.keys() != joules.keys() or _rule_broken(sampled):
        return False
    return any(abs(one.joules - joules[card]) > MISMATCH * joules[card] for card, one in sampled.items())


# --- the rest -------------------------------------------------------------------------------------------------------


def utilisation_mean(cards: Mapping[DeviceKey, Series], _run: Observed) -> Finding:
    for one in cards.values():
        if not 0 <= one.low <= one.high <= 100:
            figures = {"low": one.low, "high": one.high}
            return absent("invalid_telemetry", "power.bad_utilisation", card=card_name(one.card), **figures)
    means = {card: one.mean / 100 for card, one in cards.items()}
    return Found(sum(means.values()) / len(means), _inputs(cards, means))


def clock_mean(cards: Mapping[DeviceKey, Series], _run: Observed) -> Finding:
    means = {card: one.mean for card, one in cards.items()}
    return Found(sum(means.values()) / len(means), _inputs(cards, means))


def temperature_max(cards: Mapping[DeviceKey, Series], _run: Observed) -> Finding:
    return _highest(cards)


def throttled_share(cards: Mapping[DeviceKey, Series], _run: Observed) -> Finding:
    """Of the samples of the card that was throttled most."""
    shares = {card: one.mean for card, one in cards.items()}
    worst = max(cards, key=lambda card: shares[card])
    reasons: Counter[str] = Counter()
    for one in cards.values():
        reasons.update(one.reasons)
    inputs = {"device_id": worst[1], "reasons": dict(reasons), **_inputs(cards, shares)}
    return Found(shares[worst], inputs)


def _highest(cards: Mapping[DeviceKey, Series]) -> Found:
    highest = {card: one.high for card, one in cards.items()}
    card = max(highest, key=lambda each: highest[each])
    return Found(highest[card], {"node_index": card[0], "device_id": card[1], **_inputs(cards, highest)})


def _inputs(cards: Mapping[DeviceKey, Series], figures: Mapping[DeviceKey, float]) -> dict[str, Any]:
    return {
        "num_samples": min(one.num_inside for one in cards.values()),
        "largest_gap_seconds": max(one.largest_gap_seconds for one in cards.values()),
        "per_device": per_device(figures),
    }


def _entry(name: str, unit: str, formula: Formula, title: Text, remark: Text, **more: Any) -> MetricEntry:
    fields = {"group": "power", "scope": "device", "format": units.one_decimal, "marks": CARD, "noted": "power", **more}
    return MetricEntry(name=name, unit=unit, formula=formula, title=title, remark=remark, **fields)


METRICS = (
    _entry(
        "power_mean",
        "W",
        of_series("power_watts", power_mean),
        {"en": "Mean power", "zh": "平均功率"},
        {"en": "of one device over the measured window, W", "zh": "测量窗口内单卡平均，单位W"},
        better="lower",
    ),
    _entry(
        "power_max",
        "W",
        of_series("power_watts", power_max),
        {"en": "Highest power", "zh": "最高功率"},
        {"en": "of one device at one moment, W", "zh": "单卡单次读数的最大值，单位W"},
    ),
    _entry(
        "energy",
        "J",
        energy,
        {"en": "Energy", "zh": "能耗"},
        {"en": "of all devices over the measured window, kJ", "zh": "测量窗口内全部卡，单位kJ"},
        scope="system",
        format=units.kilojoules,
        shown_unit="kJ",
    ),
    _entry(
        "energy_per_sample",
        "J/sample",
        energy_per("samples"),
        {"en": "Energy per sample", "zh": "每样本能耗"},
        {"en": "over real samples, J", "zh": "只计真实样本，单位J"},
        better="lower",
        scope="system",
        format=units.four_digits,
    ),
    _entry(
        "energy_per_token",
        "J/token",
        energy_per("tokens"),
        {"en": "Energy per token", "zh": "每token能耗"},
        {"en": "over real tokens, J", "zh": "只计真实token，单位J"},
        better="lower",
        scope="system",
        format=units.four_digits,
    ),
    _entry(
        "utilisation_mean",
        "share",
        of_series("utilisation_percent", utilisation_mean),
        {"en": "Device utilisation", "zh": "设备利用率"},
        {
            "en": "as reported by the vendor's tool, mean over devices and samples",
            "zh": "厂商工具所报，对设备与采样取平均",
        },
        format=units.percent,
    ),
    _entry(
        "clock_mean",
        "MHz",
        of_series("clock_mhz", clock_mean),
        {"en": "Mean compute clock", "zh": "平均计算频率"},
        {"en": "of one device over the measured window, MHz", "zh": "测量窗口内单卡平均，单位MHz"},
        format=units.count,
    ),
    _entry(
        "temperature_max",
        "°C",
        of_series("temperature_celsius", temperature_max),
        {"en": "Highest temperature", "zh": "最高温度"},
        {"en": "of one device, °C", "zh": "单卡，单位°C"},
    ),
    _entry(
        "throttled_share",
        "share",
        of_series("throttle_reasons", throttled_share),
        {"en": "Throttled", "zh": "降频占比"},
        {"en": "share of samples in which the device reported throttling", "zh": "设备报告降频的采样所占比例"},
        format=units.percent,
    ),
)

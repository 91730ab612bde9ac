"""Tests that every memory probe must pass: exact bytes of the right card, nothing made up, nothing accumulated. And
memory of simulated cards that rises in the middle of a run, whatever the speed of the machine (MovingMemory)."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flagperf.api import FIGURES, MemoryProbe
from flagperf.errors import ToolFailed
from flagperf.event_files import read_events
from flagperf.events import Event, Sampled, SampleMissed, StepFinished, WorkerStarted
from flagperf.kit.tools import NOT_LISTED
from flagperf.testing.machine_folder import MachineFolder
from flagperf.testing.process import AdapterError, AdapterProcess, adapter_process
from flagperf.testing.suite import Simulation, Site, Suite
from flagperf.units import SECOND_NS

GIB = 1 << 30


class MemorySuite(Suite):
    """Tests for the vendor's memory probes and the parsers of its tool."""

    # --- offline ----------------------------------------------------------------------------------------------------

    def test_probes_say_who_they_are_and_what_they_can_bear(self, probes: list[MemoryProbe]) -> None:
        assert probes, "give at least one probe"
        for probe in probes:
            assert probe.name and probe.minimum_interval_seconds > 0
            assert set(probe.figures) <= set(FIGURES) and {"used_bytes", "total_bytes"} <= set(probe.figures)

    def test_a_probe_that_cannot_work_says_why(self, probes: list[MemoryProbe], tmp_path: Path) -> None:
        machine = MachineFolder(tmp_path / "empty").machine()
        for availability in (probe.available(machine) for probe in probes):
            assert availability.available or availability.reason

    def test_recorded_outputs_parse_to_exact_bytes(self) -> None:
        if not self.rig.recorded:
            pytest.skip("this adapter has no recorded outputs here")
        for recorded in self.rig.recorded:
            read = tuple(recorded.parse(recorded.text))
            assert read == recorded.readings, f"{recorded.parse.__name__} gives {read}; recorded is {recorded.readings}"

    def test_recorded_bytes_are_counted_in_powers_of_two(self) -> None:
        """65536 that a tool prints is 65536 x 2**20, also where it writes MB: 10**6 would be 5 % too little."""
        if not self.rig.recorded:
            pytest.skip("this adapter has no recorded outputs here")
        for recorded in self.rig.recorded:
            printed = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", recorded.text)]
            for reading in recorded.readings:
                for figure in ("used_bytes", "total_bytes"):
                    read = getattr(reading, figure)
                    if not read or any(read == round(number * 1024**power) for number in printed for power in range(4)):
                        continue
                    decimal = [f"{number:g} x 10**{power}" for number in printed for power in (3, 6, 9)
                               if read == round(number * 10**power)]  # fmt: skip
                    where = f"{recorded.parse.__name__}: {figure} of {reading.device_id}"
                    assert not decimal, f"{where} is {decimal[0]}; such tools count in powers of two"

    @pytest.mark.parametrize("damage", ["empty", "another tool", "half of it", "an error line"])
    def test_malformed_output_gives_our_error(self, damage: str) -> None:
        if not self.rig.recorded:
            pytest.skip("this adapter has no recorded outputs here")
        for recorded in self.rig.recorded:
            text = {
                "empty": "",
                "another tool": "total 0\ndrwxr-xr-x 2 root root 40 Jan  1 00:00 .\n",
                "half of it": recorded.text[: len(recorded.text) // 2],
                "an error line": "Error: the driver is not loaded\n",
            }[damage]
            try:
                readings = recorded.parse(text)
            except ToolFailed:
                continue
            known = {(each.device_id, each.used_bytes, each.total_bytes) for each in recorded.readings}
            got = {(each.device_id, each.used_bytes, each.total_bytes) for each in readings}
            whole_rows_only = damage == "half of it" and got < known
            assert whole_rows_only, f"{recorded.parse.__name__} made {readings} of {text!r}"

    def test_bytes_are_bytes_and_belong_to_their_card(self, simulation: Simulation, adapter: AdapterProcess) -> None:
        used = [(3 * index + 1) * GIB for index in range(len(simulation.cards))]
        simulation.use(*used)
        readings = self._readings(simulation, adapter)
        for reading, used_bytes, card in zip(readings, used, simulation.cards, strict=True):
            for figure, expected in (("used_bytes", used_bytes), ("total_bytes", card.memory_bytes)):
                said = reading.get(figure, reading.get("missing", {}).get(figure))
                assert said == expected, f"{figure} of {card.id} is {expected}, the probe says {said}"

    def test_every_figure_is_read_of_the_cards_that_are_there(
        self, simulation: Simulation, adapter: AdapterProcess
    ) -> None:
        """The tool lists all cards of the simulated machine. Figures under a key of no card would be lost silently."""
        for reading in self._readings(simulation, adapter):
            missing = reading.get("missing", {})
            unlisted = [figure for figure in missing if missing[figure].startswith(NOT_LISTED)]
            assert not unlisted, f"{unlisted} of {reading['device_id']}: {missing[unlisted[0]]}"

    def test_a_second_sample_does_not_add_to_the_first(self, simulation: Simulation, adapter: AdapterProcess) -> None:
        simulation.use(*[2 * GIB] * len(simulation.cards))
        first, second = _by_id(adapter.ask("sample")), _by_id(adapter.ask("sample"))
        for reading in (*first.values(), *second.values()):
            reading.pop("energy_joules", None)  # the one figure that rises by itself
        assert second == first
        simulation.use(*[1 * GIB] * len(simulation.cards))
        used = {name: reading.get("used_bytes") for name, reading in _by_id(adapter.ask("sample")).items()}
        assert set(used.values()) == {1 * GIB}, f"every card uses {1 * GIB} bytes now, the probe says {used}"

    def test_readings_follow_the_card_and_not_the_order(
        self, simulation: Simulation, adapter: AdapterProcess, tmp_path: Path
    ) -> None:
        variables = adapter.ask("visibility")
        if not variables:
            pytest.skip("this vendor has no visibility variable")
        simulation.use(*[(index + 1) * GIB for index in range(len(simulation.cards))])
        swapped = simulation.environ(**dict.fromkeys(variables, "1,0"))
        with adapter_process(self.rig.vendor, swapped, tmp_path) as process:
            readings = _by_id(process.ask("sample"))
        expected = {simulation.cards[0].id: 1 * GIB, simulation.cards[1].id: 2 * GIB}
        used = {name: reading.get("used_bytes") for name, reading in readings.items()}
        assert used == expected, f"the cards use {expected}, the probe says {used}"

    def test_what_is_not_there_has_a_reason_and_no_number(
        self, adapter: AdapterProcess, probes: list[MemoryProbe]
    ) -> None:
        sample = adapter.ask("sample")
        declared = next(probe.figures for probe in probes if probe.name == sample["probe"])
        for reading in _by_id(sample).values():
            figures = dict.fromkeys((*MemoryProbe.figures, *declared))
            absent = [figure for figure in figures if reading.get(figure) is None]
            unexplained = [figure for figure in absent if not reading.get("missing", {}).get(figure)]
            assert not unexplained, f"{unexplained} of {reading['device_id']} are absent without a reason"

    def test_an_energy_counter_does_not_fall(self, adapter: AdapterProcess, probes: list[MemoryProbe]) -> None:
        sample = adapter.ask("sample")
        first, second = _by_id(sample), _by_id(adapter.ask("sample"))
        if "energy_joules" not in next(probe.figures for probe in probes if probe.name == sample["probe"]):
            return  # nothing to hold: it declares no counter
        for device_id, reading in first.items():
            before, after = reading.get("energy_joules"), second[device_id].get("energy_joules")
            if before is None or after is None:
                assert reading["missing"].get("energy_joules"), f"{device_id}: no energy, and no reason"
            else:
                assert 0 <= before <= after, f"{device_id}: {before} J, then {after} J"

    def test_what_a_board_shares_is_the_same_for_its_chips(
        self, adapter: AdapterProcess, probes: list[MemoryProbe]
    ) -> None:
        sample = adapter.ask("sample")
        probe = next(probe for probe in probes if probe.name == sample["probe"])
        assert set(probe.board_figures) <= set(probe.figures) - {"used_bytes", "total_bytes"}, probe.board_figures
        readings, devices = _by_id(sample), self.devices(adapter)
        boards = {device.board for device in devices if device.board}
        assert boards or not probe.board_figures, "figures of boards need Device.board"
        for figure, board in itertools.product(probe.board_figures, boards):
            said = {device.id: readings[device.id].get(figure) for device in devices if device.board == board}
            assert len(set(said.values())) == 1, f"{figure} of board {board}: {said}"

    def test_throttling_is_told_in_plain_words(self, adapter: AdapterProcess) -> None:
        for reading in _by_id(adapter.ask("sample")).values():
            for reason in reading.get("throttle_reasons") or ():
                assert re.fullmatch(r"[a-z][a-z0-9 ]*", str(reason)), f"{reason!r} is not in plain words"

    def test_a_source_that_fails_is_our_error_and_never_a_number(
        self, simulation: Simulation, adapter: AdapterProcess
    ) -> None:
        adapter.ask("sample")
        self.rig.break_source(simulation)
        try:
            readings = _by_id(adapter.ask("sample"))
        except AdapterError as error:
            assert "FlagPerfError" in error.kinds or "NVMLError" in error.kinds, error
            return
        assert all(reading.get("used_bytes") is None for reading in readings.values()), readings

    # --- hardware ---------------------------------------------------------------------------------------------------

    @pytest.mark.hardware
    def test_the_probe_rises_by_what_is_allocated_and_falls_again(self, site: Site) -> None:
        device_id = site.worker.ask("activate", local_rank=0)["device_id"]
        site.worker.ask("allocate", num_bytes=1 << 20, local_rank=0)  # what the framework takes for itself comes first
        before = _used(site.worker, device_id)
        site.worker.ask("allocate", num_bytes=GIB, local_rank=0)
        during = _used(site.worker, device_id)
        site.worker.ask("free")
        after = _used(site.worker, device_id)
        rise = during - before
        assert rise == pytest.approx(GIB, rel=0.02), f"{GIB} bytes were allocated, the probe rose by {rise}"
        assert after <= before + GIB // 50

    @pytest.mark.hardware
    def test_allocating_on_one_card_leaves_the_others_alone(self, site: Site) -> None:
        devices = self.devices(site.worker)
        if len(devices) < 2:
            pytest.skip("needs two cards")
        site.worker.ask("activate", local_rank=1)
        site.worker.ask("allocate", num_bytes=1 << 20, local_rank=1)
        before = _used(site.worker, devices[0].id), _used(site.worker, devices[1].id)
        site.worker.ask("allocate", num_bytes=GIB, local_rank=1)
        after = _used(site.worker, devices[0].id), _used(site.worker, devices[1].id)
        site.worker.ask("free")
        others, rise = after[0] - before[0], after[1] - before[1]
        assert others < GIB // 50, f"nothing was allocated on {devices[0].id}, the probe rose by {others}"
        assert rise == pytest.approx(GIB, rel=0.02), f"{GIB} bytes were allocated, the probe rose by {rise}"

    def _readings(self, simulation: Simulation, adapter: AdapterProcess) -> list[Any]:
        """Return a sample in the order of the cards."""
        readings = _by_id(adapter.ask("sample"))
        ids = [card.id for card in simulation.cards]
        assert sorted(readings) == sorted(ids), f"there are readings of {sorted(readings)}; the cards are {ids}"
        return [readings[device_id] for device_id in ids]


def _by_id(sample: Any) -> dict[str, Any]:
    readings = {reading["device_id"]: reading for reading in sample["readings"]}
    assert len(readings) == len(sample["readings"]), "two readings of one card"
    return readings


def _used(process: AdapterProcess, device_id: str) -> int:
    reading = _by_id(process.ask("sample"))[device_id]
    why = reading.get("missing", {}).get("used_bytes", "without a reason")
    assert reading.get("used_bytes") is not None, f"the probe gives no used_bytes of {device_id}: {why}"
    return int(reading["used_bytes"])


# --- memory that moves -----------------------------------------------------------------------------------------------

ENOUGH_SAMPLES = 3
"""The first of them may have been under way when the memory rose."""

PATIENCE_SECONDS = 60.0
"""How long a probe that writes nothing at all is waited for."""


class MovingMemory:
    """A card whose memory rises and falls during a run: `with MovingMemory(simulation, runs_dir, card=1) as moving`.
    Run something within, then see `peak_bytes` and `shown_ns`, or why the peak was not seen in `problem`."""

    def __init__(self, simulation: Simulation, runs_dir: Path, card: int, after_steps: int = 3) -> None:
        self._simulation, self._runs_dir, self._after_steps = simulation, runs_dir, after_steps
        self.device_id = simulation.cards[card].id
        self.idle_bytes = [(256 + 64 * index) << 20 for index in range(len(simulation.cards))]
        self.peak_bytes = simulation.cards[card].memory_bytes * 3 // 4 >> 20 << 20
        self._peak = [*self.idle_bytes[:card], self.peak_bytes, *self.idle_bytes[card + 1 :]]
        self.shown_ns: tuple[int, int] | None = None
        """When the card began and ceased to show its peak."""
        self.problem = "the run ended before it had trained for a few steps"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True)

    def __enter__(self) -> MovingMemory:
        self._simulation.use(*self.idle_bytes)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _move(self) -> None:
        """Raise the memory once the run has trained for some steps. The workers stand still until it was sampled."""
        while not self._stop.wait(0.05):
            steps = [event for event in self._events("events/rank-00000") if isinstance(event, StepFinished)]
            if len(steps) >= self._after_steps:
                break
        else:
            return
        began_ns = time.monotonic_ns()
        self._simulation.use(*self._peak)
        workers = [event.clock.pid for event in self._events("events/rank-*") if isinstance(event, WorkerStarted)]
        _signal(workers, signal.SIGSTOP)
        try:
            said: list[int | str] = []
            while not self._stop.wait(0.05):
                samples = [each for each in self._events("samples/*") if isinstance(each, Sampled | SampleMissed)]
                said = [word for each in samples for word in self._said(each)]
                if any(isinstance(used, int) and used >= self.peak_bytes for used in said):  # workers' use is on top
                    self.shown_ns = began_ns, time.monotonic_ns()
                    break
                num_since = sum(event.t_ns > began_ns for event in samples)
                if num_since >= ENOUGH_SAMPLES or time.monotonic_ns() - began_ns > PATIENCE_SECONDS * SECOND_NS:
                    break
            last = said[-1] if said else "nothing"
            self.problem = f"{self.device_id} uses {self.peak_bytes} bytes, but the probe says: {last}"
            self._simulation.use(*self.idle_bytes)
        finally:
            _signal(workers, signal.SIGCONT)

    def _events(self, name: str) -> list[Event]:
        return [event for path in self._runs_dir.glob(f"*/{name}.jsonl") for event in read_events(path).events]

    def _said(self, event: Sampled | SampleMissed) -> list[int | str]:
        """Return what the probe said of this card's memory: bytes, or why it could not say."""
        if isinstance(event, SampleMissed):
            return [event.reason]
        readings = [reading for reading in event.readings if reading.device_id == self.device_id]
        return [reading.missing.get("used_bytes") or reading.used_bytes or 0 for reading in readings]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

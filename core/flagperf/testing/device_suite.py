"""Tests that every device backend must pass: evidence, identities, visibility, and the worker's side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.api import PRECISIONS, DeviceBackend
from flagperf.kit import find_model
from flagperf.plan.settings import tuned_models
from flagperf.plugins.installed import Plugins
from flagperf.testing.machine_folder import MachineFolder
from flagperf.testing.process import AdapterProcess, adapter_process, said_last
from flagperf.testing.suite import Simulation, Site, Suite, skip_without_torch

_HOOKS_TWICE = """
import sys
from flagperf.plugins.installed import load_plugins
for _ in range(2):
    plugins = load_plugins()
    plugins.device_backend(sys.argv[1]), plugins.launcher(sys.argv[1]), plugins.memory_probes(sys.argv[1])
    plugins.device_backend(sys.argv[1]).peaks()
print(" ".join(sys.modules))
"""

_PLAUSIBLE: dict[str, tuple[float, float, str]] = {
    **{each.peak_row: (1e11, 1e17, "FLOP/s (256 TFLOPS are 256e12)") for each in PRECISIONS.values()},
    **dict.fromkeys(("fp64", "fp8", "int8"), (1e11, 1e17, "operations/s of products (624 TOPS are 624e12)")),
    "memory_bandwidth": (1e10, 1e15, "bytes/s (1.8 TB/s are 1.8e12)"),
    "link_bandwidth": (1e9, 1e14, "bytes/s in one direction (600 GB/s of both are 300e9)"),
    "tdp": (5.0, 1e4, "watts"),
}
"""Peak row -> the least and the most that one card may have, and the unit. The range is wide: it finds wrong powers of
ten."""


class DeviceSuite(Suite):
    """Tests for a device backend, on simulated or real cards."""

    # --- offline ----------------------------------------------------------------------------------------------------

    def test_the_plugin_loads_and_accepts_this_core(self, plugins: Plugins) -> None:
        provided = plugins.provided_backend(self.rig.vendor)
        problems = {status.name: status.problem for status in plugins.statuses() if status.name == provided.plugin.name}
        assert not any(problems.values()), problems

    def test_hooks_can_be_called_twice_and_import_no_torch(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", _HOOKS_TWICE, self.rig.vendor],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=120,
        )
        assert done.returncode == 0, said_last(done.stderr)
        heavy = {"torch", "accelerate", "transformers", "pynvml"} & set(done.stdout.split())
        assert not heavy, f"hooks import {heavy}: do it where the card is used"

    def test_the_vendor_is_one_lower_case_word(self, backend: DeviceBackend) -> None:
        assert re.fullmatch(r"[a-z][a-z0-9]*", backend.vendor)
        assert backend.vendor not in backend.aliases

    def test_precisions_are_words_that_exist(self, backend: DeviceBackend) -> None:
        assert backend.precisions and set(backend.precisions) <= set(PRECISIONS)

    def test_peaks_have_a_source_and_a_positive_value(self, backend: DeviceBackend) -> None:
        for peak in backend.peaks():
            assert peak.source and peak.row in _PLAUSIBLE, peak
            low, high, unit = _PLAUSIBLE[peak.row]
            assert low <= peak.value <= high, f"{peak.model}, {peak.row}: {peak.value:g} cannot be in {unit}"

    def test_what_a_card_cannot_compute_has_a_source_and_no_peak(self, backend: DeviceBackend) -> None:
        known_rows = {each.peak_row for each in PRECISIONS.values()}
        for model in backend.models():
            assert set(model.unsupported) <= known_rows and all(model.unsupported.values()), model.unsupported
            assert not set(model.unsupported) & {peak.row for peak in model.peaks}, f"{model.name} has peaks for these"

    def test_tuning_can_be_read_and_calls_models_as_models_toml_does(self, backend: DeviceBackend) -> None:
        """A card that models.toml lists has tuning under its name there, any other under what it calls itself."""
        for name in tuned_models(backend.tuning_folder()):
            model = find_model(backend.models(), [name])
            assert model is None or model.name == name, f"tuning for {name!r} is never used: that is {model.name!r}"

    def test_name_patterns_are_anchored_and_fit_one_model_each(self, backend: DeviceBackend) -> None:
        for model in backend.models():
            assert model.name_pattern.startswith("^") and model.name_pattern.endswith("$"), model.name_pattern
        names = [model.name for model in backend.models()]
        assert len(names) == len(set(names))

    def test_absent_hardware_is_clean_absence_and_no_exception(self, backend: DeviceBackend, tmp_path: Path) -> None:
        if backend.is_fallback:
            pytest.skip(f"every machine has {backend.vendor}: it is never absent")
        presence = backend.presence(MachineFolder(tmp_path / "empty").machine())
        assert presence.state == "absent"
        assert presence.reason, "say what was looked for"

    def test_laid_out_cards_are_found_with_their_evidence(
        self, simulation: Simulation, adapter: AdapterProcess
    ) -> None:
        facts = adapter.ask("look")
        assert not facts["error"], facts["error"]
        assert facts["presence"]["state"] == "present"
        assert facts["presence"]["evidence"]
        assert "torch" not in adapter.ask("modules"), "finding cards must not import torch"

    def test_cards_have_their_own_ids_and_capacities_in_bytes(
        self, simulation: Simulation, adapter: AdapterProcess
    ) -> None:
        devices = self.devices(adapter)
        told = {device.id: device.memory_bytes for device in devices}
        expected = {card.id: card.memory_bytes for card in simulation.cards}
        assert list(told.items()) == list(expected.items()), f"the cards are {expected}, the adapter says {told}"
        assert all(device.model and device.short_name for device in devices)

    def test_a_visibility_variable_narrows_and_reorders(
        self, simulation: Simulation, backend: DeviceBackend, tmp_path: Path
    ) -> None:
        hidden = dict.fromkeys(backend.visibility_variables, "1,0")
        with adapter_process(self.rig.vendor, simulation.environ(**hidden), tmp_path) as process:
            assert [device.physical_index for device in self.devices(process)] == [1, 0]
        nothing = dict.fromkeys(backend.visibility_variables, "")
        with adapter_process(self.rig.vendor, simulation.environ(**nothing), tmp_path) as process:
            assert self.devices(process) == []

    def test_a_capability_that_is_not_declared_gives_no_number(self, backend: DeviceBackend) -> None:
        if not backend.has_timing_events:
            with pytest.raises(NotImplementedError):
                backend.timing_event()
        if not backend.has_allocator:
            assert backend.allocator_memory() is None

    def test_torch_knows_the_device_type_and_the_collective_backend(self, tmp_path: Path) -> None:
        simulation = self.rig.lay_out(tmp_path / "machine")
        environ = simulation.environ() if simulation else dict(os.environ)
        skip_without_torch(environ, tmp_path)
        with adapter_process(self.rig.vendor, environ, tmp_path) as process:
            known = process.ask("torch_names")
        if known["problems"] and known["not_imported"]:
            pytest.skip(f"torch cannot know {' and '.join(known['problems'])} here: {known['not_imported']}")
        problems = "; ".join(known["problems"].values())
        assert not problems, f"{problems}. If a package of its own adds them to torch, name it in import_first"

    # --- hardware ---------------------------------------------------------------------------------------------------

    @pytest.mark.hardware
    def test_tool_and_torch_count_the_same_cards(self, site: Site) -> None:
        devices = self.devices(site.worker)
        assert devices
        assert site.worker.ask("count") == len(devices)
        in_torch = site.worker.ask("capacities")
        told = [device.memory_bytes for device in devices if device.memory_bytes is not None]
        if in_torch and len(told) == len(devices):  # torch may leave out what the driver keeps, and never sees more
            assert max(in_torch) <= 1.01 * max(told), f"torch sees {max(in_torch)} bytes, the tool {max(told)}"

    @pytest.mark.hardware
    def test_visibility_really_hides(self, site: Site, backend: DeviceBackend) -> None:
        if not backend.visibility_variables:
            pytest.skip("this vendor has no visibility variable")
        devices = self.devices(site.worker)
        last, joined = devices[-1], site.worker.ask("activate", local_rank=len(devices) - 1)
        only = dict.fromkeys(backend.visibility_variables, self.rig.expected_name(last))
        with adapter_process(self.rig.vendor, site.environ(**only), site.folder) as process:
            assert [device.id for device in self.devices(process)] == [last.id]
            assert process.ask("count") == 1
            alone = process.ask("activate", local_rank=0)
        assert alone["device_id"] == last.id
        assert alone["mapping"] == joined["mapping"], "torch uses another card than the variable was meant to show"

    @pytest.mark.hardware
    def test_each_rank_gets_its_own_card_and_says_how_it_was_joined(self, site: Site) -> None:
        devices = self.devices(site.worker)
        activations = [site.worker.ask("activate", local_rank=rank) for rank in range(len(devices))]
        # As sets: without the launcher's settings torch may number cards of several models in another order.
        assert sorted(each["device_id"] for each in activations) == sorted(device.id for device in devices)
        assert {each["mapping"] for each in activations} <= {"uuid", "pci", "runtime_order", "slot", "none"}

    @pytest.mark.hardware
    def test_synchronize_makes_a_long_kernel_visible(self, site: Site, backend: DeviceBackend) -> None:
        site.worker.ask("activate", local_rank=0)
        site.worker.ask("kernel", seconds=0.05)
        times = site.worker.ask("kernel", seconds=1.5)
        assert times["done_seconds"] >= 2 * times["queued_seconds"], "synchronize came back before the work was done"
        if backend.has_timing_events:
            assert times["device_seconds"] >= 0.5 * (times["done_seconds"] - times["queued_seconds"])

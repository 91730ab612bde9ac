"""What all suites share. A vendor's test file has one class per suite:

    class TestDevice(DeviceSuite):
        rig = AcmeRig()

Tests marked `hardware` use the real cards with `pytest --flagperf-hardware`, else the rig's simulated ones. A standard
test that an adapter cannot pass yet is overridden by one that calls it and is marked xfail with a reason.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from flagperf.agent.env_script import worker_environment
from flagperf.agent.simulation import node_machine
from flagperf.api import Device, DeviceBackend, Launcher, MemoryProbe
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.testing.process import AdapterProcess, adapter_process
from flagperf.testing.rig import Rig, Simulation


class Site(msgspec.Struct, frozen=True):
    """Where the hardware tests of a class run: on this machine's cards, or on simulated ones."""

    folder: Path
    worker: AdapterProcess
    """The adapter at work there, in one process for all of them: each import of torch takes seconds."""
    simulation: Simulation | None
    inherited: Mapping[str, str]
    """What workers get, with what the vendor's env script makes of it. torch may not import without."""

    def environ(self, **variables: str) -> dict[str, str]:
        return self.simulation.environ(**variables) if self.simulation else {**self.inherited, **variables}


class Suite:
    rig: ClassVar[Rig]

    @pytest.fixture
    def simulation(self, tmp_path: Path) -> Simulation:
        simulation = self.rig.lay_out(tmp_path / "machine")
        if simulation is None:
            pytest.skip("needs simulated cards: run the adapter's own tests")
        return simulation

    @pytest.fixture
    def adapter(self, simulation: Simulation, tmp_path: Path) -> Iterator[AdapterProcess]:
        """The adapter on a machine with simulated cards."""
        with adapter_process(self.rig.vendor, simulation.environ(), tmp_path) as process:
            yield process

    @pytest.fixture
    def site(self, flagperf_site: Site) -> Site:
        return flagperf_site

    @pytest.fixture
    def plugins(self) -> Plugins:
        return load_plugins()

    @pytest.fixture
    def backend(self, plugins: Plugins) -> DeviceBackend:
        return plugins.device_backend(self.rig.vendor)

    @pytest.fixture
    def probes(self, plugins: Plugins) -> list[MemoryProbe]:
        return plugins.memory_probes(self.rig.vendor)

    @pytest.fixture
    def launcher(self, plugins: Plugins) -> Launcher:
        return plugins.launcher(self.rig.vendor)

    def devices(self, process: AdapterProcess) -> list[Device]:
        """Those that can be used: in a container the others are listed too, and torch does not see them."""
        facts = process.ask("look")
        assert not facts["error"], facts["error"]
        return [device for device in msgspec.convert(facts["devices"], list[Device]) if not device.problem]

    def test_standard_tests_are_not_replaced_but_by_an_xfail_with_its_reason(self) -> None:
        for name, standard in _standard_tests(type(self)).items():
            own = getattr(type(self), name)
            if own is not standard:
                marks = [mark for mark in getattr(own, "pytestmark", []) if mark.name == "xfail"]
                assert marks and marks[0].kwargs.get("reason"), f"{name} is replaced without an xfail that says why"


@contextlib.contextmanager
def open_site(rig: Rig, folder: Path, on_real_cards: bool) -> Iterator[Site]:
    simulation, environ = (None, _of_this_machine(rig)) if on_real_cards else _simulated(rig, folder)
    skip_without_torch(environ, folder)
    with adapter_process(rig.vendor, environ, folder) as worker:
        yield Site(folder, worker, simulation, environ)


def _of_this_machine(rig: Rig) -> Mapping[str, str]:
    plugins = load_plugins()
    if plugins.device_backend(rig.vendor).is_fallback:
        pytest.skip(f"{rig.vendor} has no cards: its slots share the host")
    return worker_environment(plugins.launcher(rig.vendor), node_machine())


def _simulated(rig: Rig, folder: Path) -> tuple[Simulation, Mapping[str, str]]:
    simulation = rig.lay_out(folder / "machine")
    if simulation is None:
        pytest.skip("needs cards: give --flagperf-hardware on a machine that has them")
    return simulation, simulation.environ()


_FIND_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def skip_without_torch(environ: Mapping[str, str], folder: Path) -> None:
    """Asked in that environment: a vendor's env script may be what brings torch onto the path."""
    if subprocess.run([sys.executable, "-c", _FIND_TORCH], env=dict(environ), cwd=folder, check=False).returncode:
        pytest.skip("needs torch, which is not installed here")


def _standard_tests(suite: type) -> dict[str, object]:
    standard = [each for each in suite.__mro__ if each.__module__.startswith("flagperf.testing.")]
    return {
        name: member for each in reversed(standard) for name, member in vars(each).items() if name.startswith("test_")
    }

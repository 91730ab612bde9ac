"""The rig, which tells the suites about an adapter, and what they share. A vendor's test file has one class per suite:

    class TestDevice(DeviceSuite):
        rig = AcmeRig()

Tests marked `hardware` use the real cards with `pytest --flagperf-hardware`, else the rig's simulated ones. A standard
test that an adapter cannot pass yet is overridden by one that calls it and is marked xfail with a reason.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from flagperf.agent.node_environment import node_machine
from flagperf.agent.node_run import worker_environment
from flagperf.api import Device, DeviceBackend, Launcher, MemoryProbe, Reading
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.testing.machine_folder import write_memory
from flagperf.testing.process import AdapterProcess, adapter_process

MEMORY = "FLAGPERF_SIMULATE_MEMORY"
CARDS = "FLAGPERF_SIMULATE_CARDS"


class SimulatedCard(msgspec.Struct, frozen=True):
    """One card as torch would report it. What this vendor's torch does not report stays empty."""

    id: str
    """The id that the adapter must give it."""
    memory_bytes: int
    """Its capacity, which the tool must print too."""
    uuid: str = ""
    """Its UUID as the tool writes it. The simulated torch reports it without the prefix."""
    pci_address: str = ""
    """Its address as torch would report it: `dddd:bb:dd.f`."""


class Simulation(msgspec.Struct, frozen=True):
    """Two or more cards on a machine laid out in a folder, in the order of their physical indices."""

    root: Path
    """The folder that the adapter sees as `/`."""
    cards: tuple[SimulatedCard, ...]
    """The cards. Card 0 is the first line of the memory file."""
    memory: Path
    """The memory file that the fake tools and libraries read."""
    variables: Mapping[str, str]
    """PATH, LD_LIBRARY_PATH and whatever else makes the adapter find the fakes; see simulated_environ."""
    torch_version: Mapping[str, str] = {}
    """Attributes of torch.version that identify this vendor's build."""

    def environ(self, **variables: str) -> dict[str, str]:
        """Return the environment of a child process. It has none of this machine's visibility variables."""
        cards = self.root / "simulated-cards.json"
        cards.write_text(json.dumps({"cards": msgspec.to_builtins(self.cards), "version": dict(self.torch_version)}))
        inherited = {name: value for name, value in os.environ.items() if not name.endswith("VISIBLE_DEVICES")}
        return {**inherited, **self.variables, MEMORY: str(self.memory), CARDS: str(cards), **variables}

    def use(self, *used_bytes: int) -> None:
        """Set what each card uses from now on."""
        write_memory(self.memory, used_bytes)


class Recorded(msgspec.Struct, frozen=True):
    """An output of the vendor's tool, and exactly what it says."""

    parse: Callable[[str], list[Reading]]
    """One of smi.py's functions."""
    text: str
    """An output as the tool printed it, with ids and serial numbers changed."""
    readings: tuple[Reading, ...]
    """All figures of the output, memory in bytes, in the order of its lines."""


class Rig(abc.ABC):
    """The facts that the suites need about an adapter. Extend it once and give it to every suite."""

    vendor: ClassVar[str]
    """The word of the adapter under test."""

    recorded: ClassVar[tuple[Recorded, ...]] = ()
    """Recorded outputs of the vendor's tools, at least one per parser."""

    @abc.abstractmethod
    def lay_out(self, folder: Path) -> Simulation | None:
        """Lay out idle simulated cards in a fresh folder. Return None if there is only the real machine."""

    def break_source(self, simulation: Simulation) -> None:
        """Make the tool or library fail from now on, as if the driver had gone away."""
        raise NotImplementedError(f"{type(self).__name__} cannot break its source")

    def expected_name(self, device: Device) -> str:
        """Return what a visibility variable must call a card: its UUID or its index."""
        return str(device.physical_index)


class InstalledRig(Rig):
    """The rig of an adapter without its tests, as installed. Tests that need simulated cards are skipped."""

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor  # type: ignore[misc]

    def lay_out(self, folder: Path) -> None:
        return None

    def expected_name(self, device: Device) -> str:
        """Return the launcher's own answer: only the vendor knows whether its cards go by UUID or by index."""
        named = getattr(load_plugins().launcher(self.vendor), "visible_name", super().expected_name)
        return str(named(device))


# --- what suites share -----------------------------------------------------------------------------------------------


class Site(msgspec.Struct, frozen=True):
    """The place where the hardware tests of a class run: this machine's cards, or simulated ones."""

    folder: Path
    worker: AdapterProcess
    """The adapter at work there. All tests of the class share it: each import of torch takes seconds."""
    simulation: Simulation | None
    inherited: Mapping[str, str]
    """The environment of workers, changed by the vendor's env script. Without it torch may not import."""

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
        """Start the adapter on a machine with simulated cards."""
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
        """Return the cards that can be used. In a container the others are listed too, but torch does not see them."""
        facts = process.ask("look")
        assert not facts["error"], facts["error"]
        return [device for device in msgspec.convert(facts["devices"], list[Device]) if not device.problem]

    def test_standard_tests_are_not_replaced_but_by_an_xfail_with_its_reason(self) -> None:
        suites = [each for each in type(self).__mro__ if each.__module__.startswith("flagperf.testing.")]
        standard = {name: member for suite in reversed(suites) for name, member in vars(suite).items()}
        for name in standard:
            own = getattr(type(self), name)
            if name.startswith("test_") and own is not standard[name]:
                marks = [mark for mark in getattr(own, "pytestmark", []) if mark.name == "xfail"]
                assert marks and marks[0].kwargs.get("reason"), f"{name} is replaced without an xfail that says why"


@contextlib.contextmanager
def open_site(rig: Rig, folder: Path, on_real_cards: bool) -> Iterator[Site]:
    """Start the adapter on this machine's cards or on simulated ones. Skip where there are none, or no torch."""
    if on_real_cards:
        plugins, simulation = load_plugins(), None
        if plugins.device_backend(rig.vendor).is_fallback:
            pytest.skip(f"{rig.vendor} has no cards: its slots share the host")
        environ = worker_environment(plugins.launcher(rig.vendor), node_machine())
    else:
        simulation = rig.lay_out(folder / "machine")
        if simulation is None:
            pytest.skip("needs cards: give --flagperf-hardware on a machine that has them")
        environ = simulation.environ()
    skip_without_torch(environ, folder)
    with adapter_process(rig.vendor, environ, folder) as worker:
        yield Site(folder, worker, simulation, environ)


def skip_without_torch(environ: Mapping[str, str], folder: Path) -> None:
    """Skip the test if that environment has no torch: a vendor's env script may be what brings it onto the path."""
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([sys.executable, "-c", find], env=dict(environ), cwd=folder, check=False).returncode:
        pytest.skip("needs torch, which is not installed here")


# --- reference material ----------------------------------------------------------------------------------------------


def shared_folder(beside: Path) -> Path | None:
    """Return the folder `shared` beside a file's repository or above it: outputs of real tools, published tables."""
    folders = [folder / "shared" for folder in beside.absolute().parents]
    return next((folder for folder in folders if (folder / "transcripts").is_dir()), None)


def shared_file(beside: str, path: str) -> Path:
    """Return a file of the folder `shared` beside the repository or above it, for material that no package contains.
    `beside` is the test's own `__file__`. If the file is missing, a test marked `shared(path)` is not collected, and
    any other is skipped. With CI=true, a file missing from an existing folder fails the test: renaming a file must not
    turn tests off."""
    folder = shared_folder(Path(beside))
    if folder is None:
        pytest.skip(f"no folder `shared` with {path} beside this repository")
    if not (folder / path).exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{folder / path} is not there")
    return folder / path


def missing_material(beside: Path, paths: Iterable[str]) -> str:
    """Return why a test cannot have these files, or "" if it is to run. In CI it runs, and fails for a missing file."""
    folder = shared_folder(beside)
    if folder is None:
        return "there is no folder `shared` beside this repository" if tuple(paths) else ""
    missing = [path for path in paths if not (folder / path).exists()]
    return f"{folder / missing[0]} is not there" if missing and os.environ.get("CI") != "true" else ""

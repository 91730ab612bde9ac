"""The suites that every adapter passes, on simulated cards."""

from __future__ import annotations

import pytest
from metax_builders import MetaxRig

from flagperf.testing import DeviceSuite, LauncherSuite, MemorySuite, RunSuite

pytestmark = pytest.mark.run


class TestDevice(DeviceSuite):
    rig = MetaxRig()


class TestMemory(MemorySuite):
    rig = MetaxRig()


class TestLauncher(LauncherSuite):
    rig = MetaxRig()


class TestRun(RunSuite):
    rig = MetaxRig()

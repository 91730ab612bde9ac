"""The suites against an installed adapter, named by FLAGPERF_CHECK_VENDOR: what `flagperf vendors check` runs."""

from __future__ import annotations

import os

from flagperf.testing.device_suite import DeviceSuite
from flagperf.testing.launcher_suite import LauncherSuite
from flagperf.testing.memory_suite import MemorySuite
from flagperf.testing.suite import InstalledRig

VENDOR = "FLAGPERF_CHECK_VENDOR"
_RIG = InstalledRig(os.environ.get(VENDOR, ""))


class TestDevice(DeviceSuite):
    rig = _RIG


class TestMemory(MemorySuite):
    rig = _RIG


class TestLauncher(LauncherSuite):
    rig = _RIG

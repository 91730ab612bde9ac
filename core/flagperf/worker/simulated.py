"""Simulated cards in the worker."""

from __future__ import annotations

from flagperf.api import DeviceBackend


def worker_backend(backend: DeviceBackend, simulated: bool) -> DeviceBackend:
    if not simulated:
        return backend
    from flagperf.testing.simulated_cards import simulated_backend  # only here: a device that tests use

    return simulated_backend(backend)

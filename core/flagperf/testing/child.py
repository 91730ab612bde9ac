"""`python -m flagperf.testing.child VENDOR`: an adapter at work in a process of its own, as in agent, probe and worker.

It reads one command per line on stdin, which names a method of Child, and writes one answer per line, both as JSON:
{"do": "sample"} -> {"answer": {"readings": ...}}, or {"error": ..., "kind": ...}. With FLAGPERF_SIMULATE=1 the cards
are those of a test, and torch gets a device module of ours.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
from types import ModuleType
from typing import Any

import msgspec

from flagperf.agent.describe import query_adapter
from flagperf.agent.node_environment import is_simulated, node_machine
from flagperf.agent.probe import choose_probe, declared
from flagperf.api import Device, DeviceBackend, MemoryProbe
from flagperf.errors import FlagPerfError
from flagperf.plugins.installed import load_plugins
from flagperf.testing.simulated_cards import StubDevices, install_stub, is_installed


class Child:
    def __init__(self, vendor: str) -> None:
        self._plugins = load_plugins()
        self._provided = self._plugins.provided_backend(vendor)
        self._backend: DeviceBackend = self._provided.value
        self._machine = node_machine()
        self._probe: MemoryProbe | None = None
        self._stub: StubDevices | None = None
        self._held: list[Any] = []

    @functools.cached_property
    def _devices(self) -> list[Device]:
        """Find the devices that can be used once, as a run does."""
        return [device for device in self._backend.devices(self._machine) if not device.problem]

    def look(self) -> Any:
        """Return presence, devices, versions and memory as `flagperf devices` sees them."""
        return query_adapter(self._provided, self._machine, self._plugins, with_memory=True)

    def sample(self) -> Any:
        """Return one reading of every card, by a probe that lives as long as this process."""
        if self._probe is None:
            choice = choose_probe(self._plugins.memory_probes(self._backend.vendor), self._machine)
            if choice.probe is None:
                raise FlagPerfError(f"no probe is available: {choice.not_used}")
            self._probe = choice.probe
        readings = self._probe.sample(self._devices, None)
        return {"readings": [declared(reading, self._probe) for reading in readings], "probe": self._probe.name}

    def modules(self) -> Any:
        return sorted(name for name in sys.modules if "." not in name)

    def visibility(self) -> tuple[str, ...]:
        return self._backend.visibility_variables

    def count(self) -> int:
        """Count the cards that torch sees."""
        return int(self._torch_module().device_count())

    def capacities(self) -> list[int]:
        """Return the bytes of every card as torch tells them; none if this torch does not."""
        module = self._torch_module()
        properties = [module.get_device_properties(index) for index in range(module.device_count())]
        return [int(each.total_memory) for each in properties if hasattr(each, "total_memory")]

    def torch_names(self) -> dict[str, Any]:
        """Return the words of the backend that torch does not know, each with the problem, and why the module that may
        add them could not be imported. A collective backend must exist, but this build of torch need not support it."""
        not_imported = ""
        try:
            self._import_first()
        except ImportError as error:
            not_imported = str(error)
        import torch

        problems = {}
        device_type, collectives = self._backend.torch_type, self._backend.collective_backend
        try:
            torch.device(device_type)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            problems[repr(device_type)] = f"torch knows no device type {device_type!r}: {reason}"
        names = [part.rpartition(":")[2].lower() for part in collectives.split(",")]  # as in cpu:gloo,acme:accl
        known = torch.distributed.Backend.backend_list if torch.distributed.is_available() else names
        for name in names:
            if name not in known:
                listed = ", ".join(known)
                problems[repr(collectives)] = f"torch.distributed knows no backend {name!r}; it knows {listed}"
        return {"problems": problems, "not_imported": not_imported}

    def activate(self, local_rank: int) -> Any:
        self._torch_module()
        return self._backend.activate(local_rank, 1, self._devices)

    def allocate(self, num_bytes: int, local_rank: int) -> None:
        """Hold memory of the card until `free`."""
        if self._stub is not None:
            self._held.append(self._stub.allocate(num_bytes))
            return
        import torch

        device = f"{self._backend.torch_type}:{local_rank}"
        self._held.append(torch.empty(num_bytes, dtype=torch.uint8, device=device).fill_(1))
        self._backend.synchronize()

    def free(self) -> None:
        while self._held:
            block = self._held.pop()
            if self._stub is not None:
                self._stub.free(block)
            del block  # the last reference: memory that is still in use is not given back
        self._torch_module().empty_cache()

    def kernel(self, seconds: float) -> dict[str, float]:
        """Queue about `seconds` of work. Return how long queueing took, when `synchronize` came back, and, with timing
        events, how long the device says that it worked."""
        marks = [self._backend.timing_event() for _ in range(2)] if self._backend.has_timing_events else []
        self._backend.synchronize()
        began = time.perf_counter()
        for mark in marks[:1]:
            mark.record()
        if self._stub is not None:
            self._stub.queue(seconds)
        else:
            import torch

            matrix = torch.randn(4096, 4096, device=self._backend.torch_type)
            for _ in range(max(1, int(seconds * 200))):
                matrix = (matrix @ matrix).clamp_(-1, 1)
        for mark in marks[1:]:
            mark.record()
        queued = time.perf_counter()
        self._backend.synchronize()
        times = {"queued_seconds": queued - began, "done_seconds": time.perf_counter() - began}
        return {**times, "device_seconds": marks[0].elapsed_ns(marks[1]) / 1e9} if marks else times

    def _torch_module(self) -> Any:
        """Return `torch.<type>`. A vendor's module that is not installed where its cards are simulated is an empty one:
        the device module that it would give torch is ours. A rig may put its own on PYTHONPATH."""
        if is_simulated():
            for name in getattr(self._backend, "import_first", ()):
                if not is_installed(name):
                    sys.modules.setdefault(name, ModuleType(name))
        self._import_first()
        import torch

        if is_simulated() and self._stub is None:
            self._stub = install_stub(torch, self._backend, os.environ)
        return getattr(torch, self._backend.torch_type)

    def _import_first(self) -> None:
        """Import what a worker imports before torch, which may see no card without it."""
        for name in getattr(self._backend, "import_first", ()):
            importlib.import_module(name)


def main(vendor: str) -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a vendor's library prints
    child = Child(vendor)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = msgspec.to_builtins({"answer": getattr(child, request.pop("do"))(**request)})
        except BaseException as error:  # noqa: BLE001  a plugin boundary: the suite judges it
            answer = {"error": str(error), "kind": [each.__name__ for each in type(error).__mro__]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

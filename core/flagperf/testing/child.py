"""`python -m flagperf.testing.child VENDOR`: an adapter at work in a process of its own, as in agent, probe and worker.

A command a line on stdin, an answer a line on stdout, both JSON: {"do": "sample"} -> {"answer": {"readings": ...}}, or
{"error": ..., "kind": ...}. With FLAGPERF_SIMULATE=1 the cards are a test's, and torch gets a device module of ours.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
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
        self.commands: Mapping[str, Callable[..., Any]] = {
            "look": self.look,
            "sample": self.sample,
            "modules": self.modules,
            "count": self.count,
            "capacities": self.capacities,
            "torch_names": self.torch_names,
            "visibility": self.visibility,
            "activate": self.activate,
            "allocate": self.allocate,
            "free": self.free,
            "kernel": self.kernel,
        }

    @functools.cached_property
    def _devices(self) -> list[Device]:
        """Found once, and those alone that can be used, as in a run."""
        return [device for device in self._backend.devices(self._machine) if not device.problem]

    def look(self) -> Any:
        """Presence, devices, versions and memory now, as `flagperf devices` sees them."""
        return query_adapter(self._provided, self._machine, self._plugins, with_memory=True)

    def sample(self) -> Any:
        """One reading of every card, by one probe that lives as long as this process."""
        if self._probe is None:
            choice = choose_probe(self._plugins.memory_probes(self._backend.vendor), self._machine)
            if choice.probe is None:
                raise FlagPerfError(f"no probe is available: {choice.not_used}")
            self._probe = choice.probe
        readings = self._probe.sample(self._devices, None)
        return {"readings": [declared(reading, self._probe) for reading in readings], "probe": self._probe.name}

    def modules(self) -> Any:
        """What has been imported so far."""
        return sorted(name for name in sys.modules if "." not in name)

    def visibility(self) -> tuple[str, ...]:
        return self._backend.visibility_variables

    def count(self) -> int:
        """Cards that torch sees."""
        return int(self._torch_module().device_count())

    def capacities(self) -> list[int]:
        """Bytes of every card as torch tells them; nothing where this torch does not."""
        module = self._torch_module()
        properties = [module.get_device_properties(index) for index in range(module.device_count())]
        return [int(each.total_memory) for each in properties if hasattr(each, "total_memory")]

    def torch_names(self) -> dict[str, Any]:
        """What is wrong with the words that torch must know, and which module it would know them from."""
        not_imported = ""
        try:
            self._import_first()
        except ImportError as error:
            not_imported = str(error)
        import torch

        words = {"torch_type": self._backend.torch_type, "collective_backend": self._backend.collective_backend}
        checks = {"torch_type": _type_problem, "collective_backend": _collective_problem}
        problems = {repr(word): checks[name](torch, word) for name, word in words.items()}
        return {"problems": problems, "not_imported": not_imported}

    def activate(self, local_rank: int) -> Any:
        self._torch_module()
        return self._backend.activate(local_rank, 1, self._devices)

    def allocate(self, num_bytes: int, local_rank: int) -> None:
        """On the card, until `free`."""
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
        """Queue about `seconds` of work. How long queueing took, how long until `synchronize` came back, and, with
        timing events, how long the device says that it worked."""
        marks = [self._backend.timing_event() for _ in range(2)] if self._backend.has_timing_events else []
        self._backend.synchronize()
        began = time.perf_counter()
        for mark in marks[:1]:
            mark.record()
        (self._stub.queue if self._stub is not None else self._queue)(seconds)
        for mark in marks[1:]:
            mark.record()
        queued = time.perf_counter()
        self._backend.synchronize()
        times = {"queued_seconds": queued - began, "done_seconds": time.perf_counter() - began}
        return {**times, "device_seconds": marks[0].elapsed_ns(marks[1]) / 1e9} if marks else times

    def _queue(self, seconds: float) -> None:
        import torch

        matrix = torch.randn(4096, 4096, device=self._backend.torch_type)
        for _ in range(max(1, int(seconds * 200))):
            matrix = (matrix @ matrix).clamp_(-1, 1)

    def _torch_module(self) -> Any:
        if is_simulated():
            self._stand_in_for_import_first()
        self._import_first()
        import torch

        if is_simulated() and self._stub is None:
            self._stub = install_stub(torch, self._backend, os.environ)
        return getattr(torch, self._backend.torch_type)

    def _import_first(self) -> None:
        """As in a worker: torch may see no card without it."""
        for name in getattr(self._backend, "import_first", ()):
            importlib.import_module(name)

    def _stand_in_for_import_first(self) -> None:
        """A vendor's module that is not installed where its cards are simulated is an empty one: the device module that
        it would give torch is ours. A rig may put its own on PYTHONPATH."""
        for name in getattr(self._backend, "import_first", ()):
            if not is_installed(name):
                sys.modules.setdefault(name, ModuleType(name))


def _type_problem(torch: Any, word: str) -> str:
    try:
        torch.device(word)
    except RuntimeError as error:
        return f"torch knows no device type {word!r}: {str(error).splitlines()[0]}"
    return ""


def _collective_problem(torch: Any, word: str) -> str:
    """Whether it exists, not whether this build can use it. `cpu:gloo,acme:accl` names one for each type."""
    names = [part.rpartition(":")[2].lower() for part in word.split(",")]
    known = torch.distributed.Backend.backend_list if torch.distributed.is_available() else names
    unknown = [name for name in names if name not in known]
    return f"torch.distributed knows no backend {unknown[0]!r}; it knows {', '.join(known)}" if unknown else ""


def main(vendor: str) -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a vendor's library prints
    child = Child(vendor)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = msgspec.to_builtins({"answer": child.commands[request.pop("do")](**request)})
        except BaseException as error:  # noqa: BLE001  a plugin boundary: the suite judges it
            answer = {"error": str(error), "kind": [each.__name__ for each in type(error).__mro__]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

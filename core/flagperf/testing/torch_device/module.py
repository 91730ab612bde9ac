"""`torch.<type>`: the functions that torch, its libraries and adapters expect of a device module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from flagperf.testing.torch_device.device import Device
from flagperf.testing.torch_device.memory import CardMemory
from flagperf.testing.torch_device.queue import QueueEvent


class DeviceModule:
    _initialized = True
    default_generators = ()

    def __init__(self, device: Device, properties: Sequence[SimpleNamespace]) -> None:
        self._device = device
        self._properties = properties

    # --- cards ------------------------------------------------------------------------------------------------------

    def is_available(self) -> bool:
        return bool(self._properties)

    def is_initialized(self) -> bool:
        return True

    def init(self) -> None: ...

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return len(self._properties)

    def current_device(self) -> int:
        return self._device.current

    def set_device(self, device: Any) -> None:
        index = self._index(device)
        if not 0 <= index < len(self._properties):
            raise RuntimeError(f"invalid device ordinal {index}: {len(self._properties)} are visible")
        self._device.current = index
        self._device.memory[index].open_context()

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before, self._device.current = self._device.current, self._index(device)
        yield
        self._device.current = before

    def get_device_name(self, device: Any = None) -> str:
        return str(self.get_device_properties(device).name)

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        return self._properties[self._index(device)]

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """Return one that has every precision: adapters ask this of cards that differ in it."""
        return 9, 0

    def _index(self, device: Any) -> int:
        if isinstance(device, int):
            return device
        index = None if device is None else torch.device(device).index
        return self._device.current if index is None else int(index)

    # --- memory -----------------------------------------------------------------------------------------------------

    def _memory(self, device: Any = None) -> CardMemory:
        return self._device.memory[self._index(device)]

    def memory_allocated(self, device: Any = None) -> int:
        return self._memory(device).allocated_bytes

    def memory_reserved(self, device: Any = None) -> int:
        return self._memory(device).reserved_bytes

    def max_memory_allocated(self, device: Any = None) -> int:
        return self._memory(device).peak_allocated_bytes

    def max_memory_reserved(self, device: Any = None) -> int:
        return self._memory(device).peak_reserved_bytes

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self._memory(device).reset_peaks()

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = self._memory(device)
        return memory.total_bytes - memory.reserved_bytes, memory.total_bytes

    def empty_cache(self) -> None:
        for memory in self._device.memory:
            memory.empty_cache()

    # --- queue ------------------------------------------------------------------------------------------------------

    def synchronize(self, device: Any = None) -> None:
        self._device.queue.synchronize()

    def num_synchronizations(self) -> int:
        """Return how often the host has waited for the device, hidden waits included. Real cards do not tell."""
        return self._device.queue.num_synchronizations

    def num_operators(self) -> int:
        """Return how many operators the process has run. Real cards do not tell."""
        return self._device.queue.num_operators

    def sleep(self, seconds: float) -> None:
        """Queue work that takes so long."""
        self._device.queue.add_seconds(seconds)

    def Event(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> QueueEvent:
        return QueueEvent(self._device.queue)

    def current_stream(self, device: Any = None) -> Stream:
        return Stream(self._device, self._index(device))

    default_stream = current_stream

    def Stream(self, device: Any = None, priority: int = 0) -> Stream:
        return Stream(self._device, self._index(device))

    def set_stream(self, stream: Any) -> None: ...

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        yield

    # --- random numbers: the CPU's ----------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> None: ...

    manual_seed_all = manual_seed

    def initial_seed(self) -> int:
        return int(torch.initial_seed())

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state()]

    def set_rng_state_all(self, states: Sequence[torch.Tensor]) -> None:
        self.set_rng_state(states[0])

    # --- precision --------------------------------------------------------------------------------------------------

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_bf16_supported(self) -> bool:
        return True


class Stream:
    """The one queue of a card: streams order nothing that is not ordered already."""

    def __init__(self, device: Device, index: int) -> None:
        self._device = device
        self.device = torch.device(device.torch_type, index)
        self.device_index = index
        self.stream_id = 0

    def synchronize(self) -> None:
        self._device.queue.synchronize()

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: QueueEvent | None = None) -> QueueEvent:
        event = event or QueueEvent(self._device.queue)
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)

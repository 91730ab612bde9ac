"""Cards for a torch that has none: the device module `torch.<torch_type>` of simulated cards.

It stands in for the lowest thing that an adapter calls in a worker. It obeys the vendor's visibility variables, counts
what is allocated in the memory file that the vendor's fake tool reads, and works through a queue that only
`synchronize` waits for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from flagperf.api import DeviceBackend
from flagperf.testing.rig import CARDS, MEMORY, SimulatedCard
from flagperf.testing.simulated_cards import visible_cards
from flagperf.testing.tools import write_memory
from flagperf.testing.torch_device import card_properties


def install_stub(torch: Any, backend: DeviceBackend, environ: Mapping[str, str]) -> StubDevices:
    described = json.loads(Path(environ[CARDS]).read_text())
    for name, value in described["version"].items():
        setattr(torch.version, name, value)
    cards = msgspec.convert(described["cards"], list[SimulatedCard])
    stub = StubDevices(cards, visible_cards(cards, backend.visibility_variables, environ), Path(environ[MEMORY]))
    setattr(torch, backend.torch_type, stub)
    return stub


class StubDevices:
    def __init__(self, cards: Sequence[SimulatedCard], visible: Sequence[int], memory: Path) -> None:
        self._memory = memory
        self._cards = cards
        self._visible = visible
        self._current = 0
        self._busy_until = 0.0

    # --- what adapters call -----------------------------------------------------------------------------------------

    def device_count(self) -> int:
        return len(self._visible)

    def set_device(self, index: int) -> None:
        if not 0 <= index < len(self._visible):
            raise RuntimeError(f"invalid device ordinal {index}: {len(self._visible)} are visible")
        self._current = index

    def get_device_name(self, index: int | None = None) -> str:
        return "simulated card"

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return card_properties(self._cards[self._visible[index]])

    def synchronize(self, device: Any = None) -> None:
        time.sleep(max(0.0, self._busy_until - time.perf_counter()))

    def reset_peak_memory_stats(self, device: Any = None) -> None: ...

    def max_memory_allocated(self, device: Any = None) -> int:
        return 0

    def max_memory_reserved(self, device: Any = None) -> int:
        return 0

    def empty_cache(self) -> None: ...

    def Event(self, enable_timing: bool = False) -> StubEvent:
        return StubEvent(self)

    def queue_end(self) -> float:
        return max(self._busy_until, time.perf_counter())

    # --- what tests call --------------------------------------------------------------------------------------------

    def allocate(self, num_bytes: int) -> tuple[int, int]:
        card = self._visible[self._current]
        self._add(card, num_bytes)
        return card, num_bytes

    def free(self, block: tuple[int, int]) -> None:
        card, num_bytes = block
        self._add(card, -num_bytes)

    def queue(self, seconds: float) -> None:
        self._busy_until = self.queue_end() + seconds

    def _add(self, card: int, num_bytes: int) -> None:
        used = [int(word) for word in self._memory.read_text().split()]
        used[card] += num_bytes
        write_memory(self._memory, used)


class StubEvent:
    """A mark at the end of the queue as it is when it is recorded."""

    def __init__(self, devices: StubDevices) -> None:
        self._devices, self._at_seconds = devices, 0.0

    def record(self) -> None:
        self._at_seconds = self._devices.queue_end()

    def elapsed_time(self, later: StubEvent) -> float:
        return (later._at_seconds - self._at_seconds) * 1000

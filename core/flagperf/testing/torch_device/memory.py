"""Live bytes of the device, really counted: a storage counts from its first tensor to the end of its last.

Like the allocators of real cards it takes memory in segments and keeps what is freed until `empty_cache`. So there are
three figures: allocated, reserved, and what the card itself reports, which includes the context of each process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch

SEGMENT_BYTES = 2 << 20
CONTEXT_BYTES = 48 << 20
"""Memory that a process costs on a card before its first tensor."""

Report = Callable[[int, int], None]
"""(device index, bytes that this process uses there): tells whoever plays the card's driver."""


class CardMemory:
    """The memory of one card, as this process uses it."""

    def __init__(self, index: int, total_bytes: int, report: Report) -> None:
        self._index, self._report = index, report
        self.total_bytes = total_bytes
        self.allocated_bytes = self.peak_allocated_bytes = 0
        self.reserved_bytes = self.peak_reserved_bytes = 0
        self._storages: dict[int, weakref.finalize[..., torch.UntypedStorage]] = {}
        self._has_context = False

    def open_context(self) -> None:
        if not self._has_context:
            self._has_context = True
            self._report(self._index, CONTEXT_BYTES)

    def hold(self, tensor: torch.Tensor) -> None:
        """Count the tensor's storage once, until it is freed. Raise if the card has no room for it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        num_bytes = storage.nbytes()
        self._take(num_bytes)
        self._storages[key] = weakref.finalize(storage, self._free, key, num_bytes)

    def resize(self, storage: torch.UntypedStorage, num_bytes: int) -> None:
        """Count a storage by its new size. FSDP frees and allocates weights by resizing."""
        finalizer = self._storages.pop(storage._cdata, None)
        if finalizer is not None:
            finalizer.detach()
            self.allocated_bytes -= storage.nbytes()
        self._take(num_bytes)
        storage.resize_(num_bytes)
        self._storages[storage._cdata] = weakref.finalize(storage, self._free, storage._cdata, num_bytes)

    def empty_cache(self) -> None:
        self._reserve(_in_segments(self.allocated_bytes))

    def reset_peaks(self) -> None:
        self.peak_allocated_bytes, self.peak_reserved_bytes = self.allocated_bytes, self.reserved_bytes

    def _take(self, num_bytes: int) -> None:
        self.open_context()
        needed = _in_segments(self.allocated_bytes + num_bytes)
        if needed > self.total_bytes - CONTEXT_BYTES:
            raise torch.OutOfMemoryError(
                f"out of memory: tried to allocate {num_bytes} bytes on a card of {self.total_bytes}; "
                f"torch has allocated {self.allocated_bytes}"
            )
        self.allocated_bytes += num_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        if needed > self.reserved_bytes:
            self._reserve(needed)

    def _reserve(self, num_bytes: int) -> None:
        self.reserved_bytes = num_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, num_bytes)
        if self._has_context:
            self._report(self._index, CONTEXT_BYTES + num_bytes)

    def _free(self, key: int, num_bytes: int) -> None:
        self._storages.pop(key, None)
        self.allocated_bytes -= num_bytes


def _in_segments(num_bytes: int) -> int:
    return -(-num_bytes // SEGMENT_BYTES) * SEGMENT_BYTES

from __future__ import annotations

import pytest

from flagperf.api import DeviceBackend, Machine
from minimal_backend import MinimalBackend


def test_the_least_is_enough_and_claims_nothing() -> None:
    backend = MinimalBackend()
    assert (backend.peaks(), backend.tuning_folder(), backend.versions(Machine())) == ([], None, {})
    assert (backend.aliases, backend.visibility_variables, backend.packages) == ((), (), ())
    assert backend.allocator_memory() is None
    assert backend.framework_state() == {}
    assert not backend.has_timing_events and not backend.is_fallback
    assert backend.memory_scope == "device"
    with pytest.raises(NotImplementedError, match="acme declares no timing events"):
        backend.timing_event()


@pytest.mark.parametrize("missing", ["presence", "devices", "activate", "synchronize"])
def test_less_cannot_be_constructed(missing: str) -> None:
    lacking = type("Lacking", (DeviceBackend,), {k: v for k, v in vars(MinimalBackend).items() if k != missing})
    with pytest.raises(TypeError, match=missing):
        lacking()


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("Out Of Memory"), True),
        (RuntimeError("invalid device ordinal"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_exhausted_memory_is_known_by_its_type_or_its_words(error: BaseException, is_memory: bool) -> None:
    assert MinimalBackend().is_out_of_memory(error) is is_memory

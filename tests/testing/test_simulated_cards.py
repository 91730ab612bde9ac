"""The worker's side of simulated cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.api import Device
from flagperf.builtin.cpu import CpuBackend
from flagperf.kit import TorchDeviceBackend
from flagperf.testing import SimulatedCard, simulated_cards, write_memory
from flagperf.testing.machine_folder import add_use
from flagperf.testing.simulated_cards import simulated_backend, visible_cards
from flagperf.worker.__main__ import worker_backend

CARDS = [SimulatedCard("a", 1 << 30, uuid="GPU-aa"), SimulatedCard("b", 1 << 30, uuid="GPU-bb")]


class BorealBackend(TorchDeviceBackend):
    vendor = "boreal"
    torch_type = "boreal"
    collective_backend = "bccl"
    precisions = ("fp32",)
    import_first = ("json", "boreal_extension_that_is_not_here")

    def presence(self, machine):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def devices(self, machine):  # type: ignore[no-untyped-def]
        raise NotImplementedError


def test_real_cards_are_left_to_their_adapter() -> None:
    backend = BorealBackend()
    assert worker_backend(backend, simulated=False) is backend


def test_the_adapters_own_code_works_on_a_type_that_is_not_its_own() -> None:
    backend = BorealBackend()
    made = simulated_backend(backend)
    assert isinstance(made, BorealBackend)
    assert (made.torch_type, made.has_allocator, made.has_timing_events) == ("simulated", True, True)
    assert made.import_first == ("json",), "what the rig has no stand-in for cannot be imported"
    assert (backend.torch_type, type(backend)) == ("boreal", BorealBackend)


def test_an_older_torch_simulates_on_the_cpu_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulated_cards, "ENTRY_POINT", "an entry point that no torch has")
    made = simulated_backend(BorealBackend())
    assert (made.torch_type, made.has_allocator) == ("cpu", False)
    assert made.activate(0, 1, [Device("card", "Boreal", "B1", 0)]).mapping == "simulated"
    assert "simulated on the CPU" in capsys.readouterr().err


def test_a_vendor_that_computes_elsewhere_by_itself_is_simulated_on_the_cpu() -> None:
    assert simulated_backend(CpuBackend()).vendor == "simulated"


@pytest.mark.parametrize(
    ("environ", "visible"),
    [
        ({}, [0, 1]),
        ({"SEEN": "1,0"}, [1, 0]),
        ({"SEEN": "GPU-b"}, [1]),
        ({"SEEN": "0,1", "ALSO": "1"}, [1]),
        ({"SEEN": "7"}, []),
        ({"SEEN": ""}, []),
    ],
)
def test_visibility_variables_narrow_and_order_the_cards(environ: dict[str, str], visible: list[int]) -> None:
    assert visible_cards(CARDS, ("SEEN", "ALSO"), environ) == visible


def test_what_a_worker_uses_comes_on_top_of_what_the_test_set(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    write_memory(memory, [100, 200])
    add_use(memory, 1, 30)
    add_use(memory, 1, 40)
    assert memory.read_text() == "100\n240\n"
    write_memory(memory, [0, 5])
    assert memory.read_text() == "0\n45\n"


def test_memory_ends_with_its_process(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    write_memory(memory, [100])
    add_use(memory, 0, 30)
    (use,) = (tmp_path / "memory.uses").iterdir()
    use.rename(use.with_name("0.99999999"))
    write_memory(memory, [100])
    assert memory.read_text() == "100\n"

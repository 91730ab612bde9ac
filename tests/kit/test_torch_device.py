"""How a worker joins torch's device to a card of the run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from flagperf.api import PRECISIONS, Device, Machine, Presence
from flagperf.errors import Unsupported
from flagperf.kit import TorchDeviceBackend

FIRST, SECOND = (f"{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")
PLACE = {"pci_domain_id": 0, "pci_bus_id": 55, "pci_device_id": 0}
CARD = Device("GPU-1", "A1", "A1", 0, uuid=f"GPU-{FIRST}", pci_address="0000:37:00.0")
SLICE = msgspec.structs.replace(CARD, slice="a quarter")


class Backend(TorchDeviceBackend):
    vendor = "acme"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32",)

    def __init__(self, *properties: Mapping[str, Any]) -> None:
        told = [SimpleNamespace(**each) for each in properties]
        self.__dict__["_module"] = SimpleNamespace(get_device_properties=lambda index: told[index])

    def presence(self, machine: Machine) -> Presence:
        return Presence("absent")

    def devices(self, machine: Machine) -> list[Device]:
        return []


@pytest.mark.parametrize(
    ("told", "device", "mapping"),
    [
        ({"uuid": FIRST, **PLACE}, CARD, "uuid"),
        ({"uuid": SECOND, **PLACE}, CARD, "pci"),  # a runtime with UUIDs of its own
        (PLACE, CARD, "pci"),
        ({**PLACE, "pci_bus_id": 56}, CARD, "none"),
        ({}, CARD, "none"),
        ({"uuid": FIRST, **PLACE}, SLICE, "uuid"),
        (PLACE, SLICE, "pci"),
        ({"uuid": SECOND, **PLACE}, SLICE, "none"),  # a neighbour on the same card
        ({"uuid": SECOND, **PLACE}, msgspec.structs.replace(SLICE, properties={"card": f"GPU-{SECOND}"}), "pci"),
        ({"uuid": SECOND, **PLACE}, msgspec.structs.replace(SLICE, uuid=""), "pci"),
    ],
)
def test_one_card_is_joined_by_what_torch_tells(told: dict[str, Any], device: Device, mapping: str) -> None:
    pytest.importorskip("torch")
    assert Backend(told)._identify(0, [device]) == (device, mapping)


def test_the_order_of_torch_is_not_the_order_of_the_cards() -> None:
    pytest.importorskip("torch")
    other = msgspec.structs.replace(CARD, id="GPU-2", uuid=f"GPU-{SECOND}", pci_address="0000:38:00.0")
    backend = Backend({"uuid": SECOND}, {"uuid": FIRST})
    assert [backend._identify(rank, [CARD, other])[0] for rank in range(2)] == [other, CARD]


def test_chips_on_one_address_are_not_told_apart_by_it_even_if_one_is_alone_in_the_run() -> None:
    chips = [msgspec.structs.replace(CARD, id=f"S7/{chip}", uuid="") for chip in range(2)]
    assert [Backend(PLACE, PLACE)._identify(rank, chips) for rank in range(2)] == [(chip, "none") for chip in chips]
    alone = msgspec.structs.replace(chips[1], board="S7")
    assert Backend(PLACE)._identify(0, [alone]) == (alone, "none")
    with_address_of_its_own = msgspec.structs.replace(alone, id=alone.pci_address)
    assert Backend(PLACE)._identify(0, [with_address_of_its_own])[1] == "pci"


RUNTIME = """
#include <stdio.h>
int acmeDeviceGetPCIBusId(char *address, int length, int device) {
    if (device > 1) return 101;
    snprintf(address, length, "0000:%02X:00.0", 0x3E + device);
    return 0;
}
"""
TORCH = "int acmeDeviceGetPCIBusId(char *, int, int); void *needs(void) { return (void *)acmeDeviceGetPCIBusId; }"


def compile_library(folder: Path, name: str, source: str, *needs: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs cc, to build the library that plays the runtime")
    (folder / f"{name}.c").write_text(source)
    build = [compiler, "-shared", "-fPIC", "-o", f"{name}.so", f"{name}.c", *needs, f"-Wl,-rpath,{folder}"]
    subprocess.run(build, check=True, cwd=folder)


@pytest.fixture
def linked_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose own library needs the vendor's runtime, of which it knows no more than that."""
    import torch

    compile_library(tmp_path, "libruntime", RUNTIME)
    compile_library(tmp_path, "torch", TORCH, "-L.", "-lruntime")
    monkeypatch.setattr(torch._C, "__file__", str(tmp_path / "torch.so"))


class OlderBackend(Backend):
    pci_address_call = "acmeDeviceGetPCIBusId"


@pytest.mark.run
@pytest.mark.usefixtures("linked_torch")
def test_the_runtime_tells_the_address_where_torch_does_not() -> None:
    cards = [msgspec.structs.replace(CARD, id=bus, uuid="", pci_address=f"0000:{bus}:00.0") for bus in ("3f", "3e")]
    backend = OlderBackend({}, {"uuid": SECOND}, {}, PLACE)
    assert [backend._identify(rank, cards) for rank in range(2)] == [(cards[1], "pci"), (cards[0], "pci")]
    assert backend._identify(2, [*cards, CARD]) == (CARD, "none")  # the runtime gives an error
    assert backend._identify(3, [*cards, CARD]) == (CARD, "pci")  # torch tells it
    assert Backend({})._identify(0, cards) == (cards[0], "none")  # no such call is declared


OTHER_ORDER = """
#include <stdio.h>
int acmertPciAddress(int device, char *address, size_t length) {
    return snprintf(address, length, "0000:%02x:00.0", 0x37 + device) < 0;
}
"""


@pytest.mark.run
def test_the_call_may_be_in_a_library_of_its_own_with_another_order_of_arguments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class OutOfTree(Backend):
        pci_address_call = "acmertPciAddress"
        pci_address_arguments = ("device", "address", "length")
        pci_address_library = str(tmp_path / "libacmert.so")

    pytest.importorskip("torch")
    other = msgspec.structs.replace(CARD, id="GPU-2", pci_address="0000:38:00.0")
    assert OutOfTree({})._identify(0, [other])[1] == "none"
    assert "acmertPciAddress cannot be asked for PCI addresses" in capfd.readouterr().err
    compile_library(tmp_path, "libacmert", OTHER_ORDER)
    backend = OutOfTree({}, {})
    assert [backend._identify(rank, [other, CARD]) for rank in range(2)] == [(CARD, "pci"), (other, "pci")]


@pytest.mark.run
def test_a_runtime_without_the_call_tells_nothing() -> None:
    assert OlderBackend({})._identify(0, [CARD]) == (CARD, "none")


class Switched(Backend):
    tf32_switches = ("acme_torch:acme.matmul.allow_hf32",)


@pytest.mark.run
def test_a_switch_may_be_of_any_module_and_is_off_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was on by default, and that is corrected before anything is measured."""
    import torch

    matmul = SimpleNamespace(allow_hf32=True)
    monkeypatch.setitem(sys.modules, "acme_torch", SimpleNamespace(acme=SimpleNamespace(matmul=matmul)))
    backend = Switched()
    backend._module.get_device_name = lambda: "Acme One"
    backend.set_precision(PRECISIONS["fp32"])
    assert matmul.allow_hf32 is False
    assert backend.framework_state()["acme_torch:acme.matmul.allow_hf32"] is False
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda word: None)
    backend.set_precision(PRECISIONS["tf32"])
    assert matmul.allow_hf32 is True


class OfTorchsOwnType(Backend):
    torch_type = "cuda"
    tf32_switches = ("cuda.matmul.allow_tf32",)


@pytest.mark.run
def test_switches_are_read_back_also_those_of_reductions_in_fewer_bits() -> None:
    import torch

    backend, matmul = OfTorchsOwnType(), torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction
    try:
        matmul.allow_bf16_reduced_precision_reduction = not before
        backend.set_precision(PRECISIONS["tf32"])
        allowed = backend.precision_switches()
    finally:
        matmul.allow_bf16_reduced_precision_reduction = before
        backend.set_precision(PRECISIONS["fp32"])
    assert (allowed["float32_matmul_precision"], allowed["cuda.matmul.allow_tf32"]) == ("high", True)
    assert allowed["cuda.matmul.allow_bf16_reduced_precision_reduction"] is not before
    assert backend.precision_switches()["cuda.matmul.allow_tf32"] is False


class NotInThisTorch(Backend):
    torch_type = "acme"
    import_first = ("json",)

    def __init__(self) -> None: ...


@pytest.mark.run
def test_a_torch_without_the_device_module_is_unsupported() -> None:
    with pytest.raises(Unsupported, match=r"has no torch\.acme; json did not add it"):
        NotInThisTorch().activate(0, 1, [CARD])


ACTIVATE = """
from test_torch_device import Backend

Backend.import_first = ("acme_patch",)
Backend().activate(0, 1, [])
"""


def activate(folder: Path, patch: str) -> str:
    """In a process of its own: what its patch, torch and message said."""
    (folder / "acme_patch.py").write_text(patch)
    (folder / "torch.py").write_text("print('torch')\n__version__ = '9.9'\n")
    done = subprocess.run(
        [sys.executable, "-c", ACTIVATE],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{Path(__file__).parent}"},
    )
    return done.stdout + done.stderr


def test_what_changes_torch_is_imported_before_it(tmp_path: Path) -> None:
    said = activate(tmp_path, "print('patch')")
    assert said.splitlines()[:2] == ["patch", "torch"]


def test_a_module_that_is_missing_is_named_with_this_torch(tmp_path: Path) -> None:
    said = activate(tmp_path, "import acme_runtime")
    assert "Unsupported: this torch (9.9) cannot use acme cards: No module named 'acme_runtime'" in said

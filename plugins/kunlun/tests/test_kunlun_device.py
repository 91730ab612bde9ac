"""Which cards are here, what they are called, and the worker's side."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kunlun_builders import TOTAL_MIB, answers, folder_with_cards, machine_with_tool
from kunlun_outputs import ADDRESSES, TABLE, UUIDS, transcript

from flagperf.api import Device, Machine
from flagperf.errors import BadInput, ToolFailed, Unsupported
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_kunlun.device import KunlunBackend

BACKEND = KunlunBackend()


# --- presence --------------------------------------------------------------------------------------------------------


def card(here: MachineFolder, *nodes: str, device_id: str = "3688", class_id: str = "1200") -> MachineFolder:
    return here.pci(ADDRESSES[0], "1d22", device_id, class_id).node(*nodes)


def foreign_id(here: MachineFolder) -> MachineFolder:
    """The vendor id of a P800 PCIe is nobody's in the public list."""
    return here.pci("0000:01:00.0", "2057", "3686", "1200")


BOTH = ("/dev/xpuctrl", "/dev/xpu0")
INTEL = [Answer(("*",), transcript("intel_discovery"))]
PRESENCE: dict[str, tuple[Callable[[MachineFolder], object], str, Sequence[str]]] = {
    "cards with nodes and module": (
        lambda here: folder_with_cards(here.root), "present",
        [*(f"PCI {address} 1d22:3688" for address in ADDRESSES), *BOTH, "/dev/xpu1", "/sys/module/kunlun"],
    ),
    "K and R series": (lambda here: card(here, "/dev/xpuctrl", "/dev/xpu3", device_id="3684"), "present", []),
    "another class": (lambda here: card(here, *BOTH, device_id="3684", class_id="0780"), "present", []),
    "virtual functions": (lambda here: card(here, *BOTH, device_id="3685"), "present", []),
    "a disk of the vendor": (lambda here: here.pci("0000:02:00.0", "1d22", "1380", "0108"), "absent", []),
    "a foreign id": (foreign_id, "absent", []),
    "a foreign id with the control node": (lambda here: foreign_id(here).node(*BOTH), "present", []),
    "a card without nodes": (card, "partial", ["its device node", "map it"]),
    "a card without the control node": (lambda here: card(here, "/dev/xpu0"), "partial", ["/dev/xpuctrl", "map it"]),
    "a card without its own node": (
        lambda here: card(here, "/dev/xpuctrl"), "partial", ["/dev/xpu0 or another", "map it"],
    ),
    "nodes alone": (lambda here: here.node(*BOTH), "partial", []),
    "nodes and module": (lambda here: here.node(*BOTH).module("xpu_driver"), "present", []),
    "Intel's card and tool": (
        lambda here: write_tool(here.pci("0000:4d:00.0", "8086", "56c0", "0380").root / "bin", "xpu-smi", INTEL),
        "absent", ["xpu-smi"],
    ),
    "a card in error": (
        lambda here: in_error(folder_with_cards(here.root).machine(), 1),
        "present", ["/proc/xpu/dev1/state is ERROR"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PRESENCE)
def test_presence_follows_from_the_evidence(case: str, tmp_path: Path) -> None:
    lay_out, state, words = PRESENCE[case]
    folder = MachineFolder(tmp_path)
    lay_out(folder)
    presence = BACKEND.presence(folder.machine({"PATH": str(tmp_path / "bin")}))
    assert presence.state == state
    assert not [each for each in words if each not in f"{presence.reason} {presence.evidence}"], presence
    assert str(tmp_path / "bin") not in presence.reason, "a tool of that name is Intel's as well"


# --- identity --------------------------------------------------------------------------------------------------------


def in_error(machine: Machine, number: int) -> Machine:
    MachineFolder(machine.root).file("/proc/xpu/dev0/state", "NORMAL\n")
    MachineFolder(machine.root).file(f"/proc/xpu/dev{number}/state", "ERROR\n")
    return machine


def without(machine: Machine, *paths: str) -> Machine:
    for path in paths:
        found = machine.root / path
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    return machine


def beside(machine: Machine, address: str, device_id: str) -> Machine:
    MachineFolder(machine.root).pci(address, "1d22", device_id, "1200")
    return machine


def of_lines(path: Path, name: str) -> Machine:
    return machine_with_tool(path, [Answer(("-m",), transcript(name))])


LINES, DETAILS = transcript("machine_p800"), transcript("query_p800")
FIRST = [Answer(("-m",), LINES.splitlines(keepends=True)[0])]
SICK_TABLE = Answer((), TABLE.replace("|                    0 |", "|                    3 |", 1))
OLD = [Answer(("-m",), transcript("machine_k200_milliwatts")), Answer((), transcript("table_xre4_8_columns"))]
SERIAL = "0200210711000123"


def first_of_two(path: Path, *lost: str) -> Machine:
    """The first card, whose node is /dev/xpu1, is listed; the other node, /dev/xpu0, is in error."""
    details = DETAILS[: DETAILS.index("XPU 00000000:B4")].replace(": 2\n", ": 1\n")
    return without(in_error(machine_with_tool(path, [*FIRST, Answer(("-q",), details)]), 0), *lost)


def nameless() -> list[Answer]:
    return [Answer(each.arguments, re.sub(r"(XPU UUID +: ).*", r"\1N/A", each.stdout)) for each in answers()]


NOT_LISTED, ON_NODES = "xpu-smi does not list it", "lists 1 of the 2 cards whose nodes are here (/dev/xpu0, /dev/xpu1)"
ERROR_0, ERROR_1 = "/proc/xpu/dev0/state is ERROR", "/proc/xpu/dev1/state is ERROR"
OF_NO_CARD, UNCLEAR = "lists no card with this node", "does not tell which card has this node"
MEMORY_ERRORS = "3 uncorrectable memory errors"
LAST_BUS = f"sys/bus/pci/devices/{ADDRESSES[1]}"
DEVICES: dict[str, tuple[Callable[[Path], Machine], dict[str, list[object]]]] = {
    "all that is known": (lambda path: machine_with_tool(path, answers()), {
        "id": list(UUIDS), "uuid": list(UUIDS), "pci_address": list(ADDRESSES), "physical_index": [0, 1],
        "model": ["P800-OAM"] * 2, "short_name": ["P800-OAM"] * 2, "slice": ["", ""], "pci_id": ["3688"] * 2,
        "memory_bytes": [TOTAL_MIB << 20] * 2, "serial": ["02K15K700AB00417", "02K15K700AB00522"],
        "chip": ["0", "0"], "firmware": ["1.0:2.7:1.40.1.8"] * 2, "power_limit_watts": ["400.00"] * 2,
    }),
    "a release without details": (lambda path: machine_with_tool(path, answers()[:1], tool="xpu_smi"), {
        "id": list(ADDRESSES), "uuid": ["", ""],
    }),
    "a UUID that says nothing": (lambda path: machine_with_tool(path, nameless()), {
        "id": list(ADDRESSES), "uuid": ["", ""], "power_limit_watts": ["400.00"] * 2,
    }),
    "a name that says nothing": (
        lambda path: machine_with_tool(path, [Answer(("-m",), LINES.replace('"P800 OAM"', "N/A"))]),
        {"model": ["Kunlunxin card"] * 2},
    ),
    "lines of a release that is not known": (lambda path: machine_with_tool(path, answers()[1:]), {
        "id": list(UUIDS), "memory_bytes": [TOTAL_MIB << 20] * 2,
    }),
    "two devices of a board": (lambda path: of_lines(path, "machine_k200_milliwatts"), {
        "id": [f"{SERIAL}/0", f"{SERIAL}/1"], "pci_address": ["0000:06:00.0"] * 2,
    }),
    "two devices of a board in the table": (lambda path: machine_with_tool(path, OLD[1:]), {
        "id": [f"{SERIAL}/device 0", f"{SERIAL}/device 1", "0001:03:00.0"],
    }),
    "slices": (lambda path: of_lines(path, "machine_r200_sriov"), {
        "slice": ["R200-PF, what its virtual functions leave", "virtual function R200-VF-5G"],
        "memory_bytes": [13568 << 20, 4006 << 20], "model": ["R200-PF", "R200-VF-5G"],
    }),
    "a slice by the bus": (lambda path: beside(machine_with_tool(path, answers()), ADDRESSES[1], "3685"), {
        "slice": ["", "virtual function P800 OAM"],
    }),
    # problems
    "an error, by node and not by place": (lambda path: in_error(machine_with_tool(path, answers()), 1), {
        "problem": [ERROR_1, ""],
    }),
    "an error, by the older table's node": (lambda path: in_error(machine_with_tool(path, OLD), 1), {
        "problem": ["", ERROR_1],
    }),
    "an error that the tool tells": (lambda path: machine_with_tool(path, [*answers()[:2], SICK_TABLE]), {
        "problem": [MEMORY_ERRORS, ""],
    }),
    "an error of nobody knows which card": (lambda path: in_error(machine_with_tool(path, answers()[:1]), 1), {
        "id": [*ADDRESSES, "/dev/xpu1"], "problem": ["", "", UNCLEAR],
    }),
    "a lost card": (lambda path: machine_with_tool(path, FIRST), {
        "id": list(ADDRESSES), "model": ["P800-OAM", "Kunlunxin card"], "problem": ["", NOT_LISTED],
    }),
    "a card without its node is not lost": (lambda path: without(machine_with_tool(path, FIRST), "dev/xpu1"), {
        "id": [ADDRESSES[0]],
    }),
    "a lost card where the bus is the host's": (
        lambda path: beside(machine_with_tool(path, FIRST), "0000:c4:00.0", "3688"),
        {"id": [ADDRESSES[0], "unlisted-1"], "physical_index": [0, -1], "problem": ["", ON_NODES]},
    ),
    "a lost card without a bus": (lambda path: without(machine_with_tool(path, FIRST), "sys/bus/pci"), {
        "id": [ADDRESSES[0], "unlisted-1"], "problem": ["", ON_NODES],
    }),
    "no lost card without a bus": (lambda path: without(machine_with_tool(path, FIRST), "sys/bus/pci", "dev/xpu1"), {
        "id": [ADDRESSES[0]],
    }),
    "a node in error that no listed card has": (first_of_two, {
        "id": [UUIDS[0], ADDRESSES[1]], "problem": ["", f"{NOT_LISTED} {ERROR_0} {OF_NO_CARD}"],
    }),
    "a node in error whose card the bus has lost too": (lambda path: first_of_two(path, LAST_BUS), {
        "id": [UUIDS[0], "/dev/xpu0"], "model": ["P800-OAM", "Kunlunxin card"], "physical_index": [0, -1],
        "problem": ["", f"{ERROR_0} {OF_NO_CARD}"],
    }),
    "another container's node in error": (lambda path: first_of_two(path, LAST_BUS, "dev/xpu0"), {"id": [UUIDS[0]]}),
}  # fmt: skip


@pytest.mark.parametrize("case", DEVICES)
def test_devices_are_what_tool_bus_and_driver_say(case: str, tmp_path: Path) -> None:
    lay_out, expected = DEVICES[case]
    devices = BACKEND.devices(lay_out(tmp_path))
    assert {name: [told(device, name) for device in devices] for name in expected} == expected


def told(device: Device, name: str) -> object:
    """An attribute or a property; the parts of a problem that say what is wrong."""
    if name == "problem" and device.problem:
        parts = (NOT_LISTED, ON_NODES, MEMORY_ERRORS, UNCLEAR) if UNCLEAR in device.problem else PARTS
        return " ".join(words for words in parts if words in device.problem)
    return getattr(device, name, device.properties.get(name))


PARTS = (NOT_LISTED, ON_NODES, MEMORY_ERRORS, ERROR_0, ERROR_1, OF_NO_CARD)
ERRORS: dict[str, tuple[Callable[[Path], Machine], type[Exception], str]] = {
    "no tool": (
        lambda path: folder_with_cards(path).machine(), ToolFailed, "neither on PATH nor in /usr/local/bin",
    ),
    "an error of the tool": (
        lambda path: machine_with_tool(path, [Answer(("*",), transcript("error_no_device"))]),
        ToolFailed, "Initialize default context",
    ),
    "neither lines nor table": (
        lambda path: machine_with_tool(path, answers()[1:2]), ToolFailed, "-m ended with 1",
    ),
    "variables that disagree": (
        lambda path: machine_with_tool(path, answers(), XPU_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1"),
        BadInput, "disagree",
    ),
    "a debug level that is no number": (
        lambda path: machine_with_tool(path, answers(), BKCL_DEBUG="INFO"),
        BadInput, "BKCL_DEBUG='INFO' is set, and must be a number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_told_is_one_clear_error(case: str, tmp_path: Path) -> None:
    lay_out, error, words = ERRORS[case]
    with pytest.raises(error, match=words):
        BACKEND.devices(lay_out(tmp_path))


def test_driver_and_runtime_are_separate_versions_and_a_container_of_other_names_has_none(tmp_path: Path) -> None:
    versions = {"driver": "5.0.33.2", "xre": "5.0.33"}
    assert BACKEND.versions(machine_with_tool(tmp_path / "p800", answers())) == versions
    alias = [Answer((), transcript("table_p800_alias_container"))]
    assert BACKEND.versions(machine_with_tool(tmp_path / "alias", alias)) == {}
    assert BACKEND.versions(MachineFolder(tmp_path / "nothing").machine()) == {}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("R200", "R200"),
        ("R300", "R300"),
        ("P800 OAM", "P800-OAM"),
        ("P800 PCIe", "P800-PCIe"),
        *((name, None) for name in ("P800", "R200-VF-5G", "R200-PF", "K200")),
    ],
)
def test_the_tools_name_tells_the_model_and_a_slice_has_none(name: str, model: str | None) -> None:
    found = find_model(BACKEND.models(), [name], "3684")
    assert (found.name if found else None) == model


# --- worker ----------------------------------------------------------------------------------------------------------


def torch_that_sees(num_cards: int, name: str = "GPU", has_cudnn: bool = False) -> Any:
    """A stock torch whose functions nobody replaced, but for what is asked for."""
    linear, module = object(), type("Linear", (), {"__module__": "torch.nn.modules.linear"})
    return SimpleNamespace(
        __version__="2.9.0+cu129",
        version=SimpleNamespace(cuda="12.9"),
        cuda=SimpleNamespace(device_count=lambda: num_cards, get_device_name=lambda: name),
        backends=SimpleNamespace(cudnn=SimpleNamespace(enabled=has_cudnn)),
        nn=SimpleNamespace(functional=SimpleNamespace(linear=linear), Linear=module),
        _C=SimpleNamespace(_nn=SimpleNamespace(linear=linear)),
    )


def test_a_torch_that_cannot_use_the_cards_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISABLE_XPYTORCH", raising=False)
    assert BACKEND.wrong_build(torch_that_sees(8)) == ""
    assert "sees no card" in BACKEND.wrong_build(torch_that_sees(0))
    stock = torch_that_sees(8, "NVIDIA A100-SXM4-40GB", has_cudnn=True)
    assert "has not patched torch" in BACKEND.wrong_build(stock)
    stock.nn.functional.linear = object()
    assert BACKEND.wrong_build(stock) == ""
    monkeypatch.setenv("DISABLE_XPYTORCH", "1")
    assert "DISABLE_XPYTORCH=1" in BACKEND.wrong_build(torch_that_sees(8))


def test_activating_without_torch_xmlir_ends_as_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_that_sees(8))
    monkeypatch.setitem(sys.modules, "torch_xmlir", None)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=r"cannot use kunlun cards: .*torch_xmlir"):
        KunlunBackend().activate(0, 1, [Device("a", "R300", "R300", 0)])


@pytest.mark.run
def test_the_record_says_what_the_patch_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    for name, value in (("XMLIR_D_FORCE_FALLBACK", "1"), ("CUDA_DEVICE_ORDER", "OAM_ID")):
        monkeypatch.setenv(name, value)
    state = KunlunBackend().framework_state()
    assert (state["torch_xmlir.patched"], state["device_name"]) == ("cudnn off, device name", "GPU")
    assert (state["XMLIR_D_FORCE_FALLBACK"], state["CUDA_DEVICE_ORDER"]) == ("1", "OAM_ID")
    assert state["torch.compile"].startswith("does nothing: models run eagerly")
    monkeypatch.setenv("XMLIR_ENABLE_MOCK_TORCH_COMPILE", "false")
    assert KunlunBackend().framework_state()["torch.compile"] == "compiles"

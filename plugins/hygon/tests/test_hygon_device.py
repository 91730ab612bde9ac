"""Which cards are here, what they are called, and the worker's side."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hygon_builders import (
    ADDRESSES,
    TABLE,
    TOTAL_MIB,
    answers,
    as_text,
    folder_with_cards,
    machine_with_tool,
    with_cpu_functions,
)

from flagperf.api import Device, Machine
from flagperf.errors import BadInput, ToolFailed, Unsupported
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_hygon.device import HygonBackend

BACKEND = HygonBackend()
CARD, OF_AMD = (ADDRESSES[0], "1d94", "6210", "0380"), ("0000:03:00.0", "1002", "740f", "0380")


# --- presence --------------------------------------------------------------------------------------------------------

PRESENCE: dict[str, tuple[Callable[[MachineFolder], object], str, Sequence[str]]] = {
    "cards with node and module": (
        lambda here: folder_with_cards(here.root), "present",
        [*(f"PCI {address} 1d94:6210 class 0380" for address in ADDRESSES), "/dev/kfd", "/sys/module/hycu"],
    ),
    "a Hygon CPU alone": (with_cpu_functions, "absent", ["1d94"]),
    "a Hygon CPU beside another vendor's cards": (
        lambda here: with_cpu_functions(here).pci("0000:07:00.0", "10de", "20b2", "0302").node("/dev/nvidiactl"),
        "absent", [],
    ),
    "a known id of another class": (
        lambda here: here.pci(ADDRESSES[0], "1d94", "631a", "0b40").node("/dev/kfd"), "present", [],
    ),
    "a card without its node": (lambda here: here.pci(*CARD), "partial", ["not here"]),
    "a node alone": (lambda here: here.node("/dev/kfd"), "partial", []),
    "a node and its module": (lambda here: here.node("/dev/kfd").module("hydcu"), "present", []),
    "a module that is not live": (lambda here: here.file("/sys/module/hycu/initstate", "going\n"), "absent", []),
    "kfd beside an AMD card": (lambda here: here.pci(*OF_AMD).node("/dev/kfd"), "absent", []),
    "kfd beside cards of both": (lambda here: here.pci(*OF_AMD).pci(*CARD).node("/dev/kfd"), "partial", []),
    "kfd beside cards of both, and the module": (
        lambda here: here.pci(*OF_AMD).pci(*CARD).node("/dev/kfd").module("hycu"), "present", [],
    ),
    "library and tool alone": (
        lambda here: (here.file("/opt/hyhal/lib/librocm_smi64.so"), write_tool(here.root / "bin", "rocm-smi", [])),
        "absent", ["/opt/hyhal/lib/librocm_smi64.so"],
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


# --- identity --------------------------------------------------------------------------------------------------------


def numbered(*numbers: int) -> list[Answer]:
    """The tool's answers with other numbers of the cards."""
    texts = [
        each.stdout.replace("card1", f"card{numbers[1]}").replace('"card0"', f'"card{numbers[0]}"')
        for each in answers()
    ]
    return [Answer(each.arguments, text) for each, text in zip(answers(), texts, strict=True)]


def in_its_folder(folder: Path) -> Machine:
    machine_with_tool(folder, answers())
    (folder / "root/opt/hyhal").mkdir(parents=True)
    (folder / "bin").rename(folder / "root/opt/hyhal/bin")
    return MachineFolder(folder / "root").machine()


def with_nodes(machine: Machine, *indices: int) -> Machine:
    """Of cards whose render node is here."""
    for index in indices:
        drm = f"/sys/bus/pci/devices/{ADDRESSES[index]}/drm/renderD{128 + index}/dev"
        MachineFolder(machine.root).file(drm, f"226:{128 + index}\n").node(f"/dev/dri/renderD{128 + index}")
    return machine


ONE = answers(addresses=ADDRESSES[:1])
ONE_ROW = [Answer((), "".join(line for line in TABLE[0].stdout.splitlines(keepends=True) if not line.startswith("1 ")))]
BOTH = list(ADDRESSES)
LOST_BY_NUMBER = f"hy-smi lists 1 of the 2 cards on the bus whose nodes are here ({', '.join(ADDRESSES)})"
DEVICES: dict[str, tuple[Callable[[Path], Machine], dict[str, list[object]]]] = {
    "all that is known": (lambda path: machine_with_tool(path, answers()), {
        "id": BOTH, "physical_index": [0, 1], "memory_bytes": [TOTAL_MIB << 20] * 2, "model": ["K100_AI"] * 2,
        "short_name": ["K100_AI"] * 2, "tool_index": ["0", "1"], "tool_name": ["K100_AI"] * 2, "pci_id": ["6210"] * 2,
    }),
    "the PCI id goes before the tool's name": (lambda path: machine_with_tool(path, answers(name="Z100SM")), {
        "model": ["K100_AI"] * 2, "tool_name": ["Z100SM"] * 2,
    }),
    "an unknown card has its own name": (
        lambda path: machine_with_tool(path, answers(name="BW"), pci_ids=("9999", "9999")), {"model": ["BW"] * 2},
    ),
    "a name that says nothing": (
        lambda path: machine_with_tool(path, answers(name="N/A"), pci_ids=("9999", "9999")),
        {"model": ["Hygon 9999"] * 2},
    ),
    "numbers from 1": (lambda path: machine_with_tool(path, answers(first=1)), {
        "id": BOTH, "physical_index": [0, 1], "tool_index": ["1", "2"],
    }),
    "a container's numbers": (lambda path: machine_with_tool(path, numbered(2, 5)), {
        "id": BOTH, "physical_index": [0, 1],
    }),
    "the tool's older name": (lambda path: machine_with_tool(path, answers(), tool="rocm-smi"), {"id": BOTH}),
    "the tool in a folder of its own": (in_its_folder, {"id": BOTH}),
    "metrics that fail": (lambda path: machine_with_tool(path, answers()[:1]), {
        "memory_bytes": [None, None], "model": ["K100_AI"] * 2,
    }),
    "a release without JSON": (lambda path: machine_with_tool(path, as_text(answers())), {
        "id": BOTH, "memory_bytes": [TOTAL_MIB << 20] * 2, "tool_name": ["K100_AI"] * 2,
    }),
    "a release with the table alone": (lambda path: machine_with_tool(path, TABLE), {
        "id": ["hy-smi-0", "hy-smi-1"], "physical_index": [0, 1], "pci_address": ["", ""], "model": ["K100_AI"] * 2,
        "memory_bytes": [None, None], "memory_missing": ["the table gives memory in whole percents only"] * 2,
    }),
    "a table beside two models": (lambda path: machine_with_tool(path, TABLE, pci_ids=("6210", "62b7")), {
        "model": ["Hygon card"] * 2,
    }),
    "slices": (lambda path: machine_with_tool(path, answers(), VHCU_VISIBLE_DEVICES="0,1"), {
        "slice": ["vHCU 0,1"] * 2, "memory_bytes": [None, None],
    }),
    "a slice by its name": (lambda path: machine_with_tool(path, answers(name="K100_AI-vHCU")), {
        "slice": ["K100_AI-vHCU"] * 2,
    }),
    "two variables that say the same": (
        lambda path: machine_with_tool(path, answers(), CUDA_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1"),
        {"id": [ADDRESSES[1]]},
    ),
    "a card without its node is not lost": (lambda path: with_nodes(machine_with_tool(path, ONE), 0), {
        "id": [ADDRESSES[0]], "problem": [""],
    }),
    "a lost card": (lambda path: with_nodes(machine_with_tool(path, ONE), 0, 1), {
        "id": BOTH, "model": ["K100_AI"] * 2, "problem": ["", "hy-smi does not list it"],
    }),
    "one node, one row of the table": (lambda path: with_nodes(machine_with_tool(path, ONE_ROW), 1), {
        "id": ["hy-smi-0"], "problem": [""],
    }),
    "a lost card of the table": (lambda path: with_nodes(machine_with_tool(path, ONE_ROW), 0, 1), {
        "id": ["hy-smi-0", "unlisted-1"], "model": ["K100_AI", "Hygon card"], "physical_index": [0, -1],
        "problem": ["", LOST_BY_NUMBER],
    }),
    "no lost card of the table": (lambda path: with_nodes(machine_with_tool(path, TABLE), 0, 1), {
        "problem": ["", ""],
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", DEVICES)
def test_devices_are_what_tool_and_bus_say(case: str, tmp_path: Path) -> None:
    lay_out, expected = DEVICES[case]
    devices = BACKEND.devices(lay_out(tmp_path))
    assert {name: [told(device, name) for device in devices] for name in expected} == expected


def told(device: Device, name: str) -> object:
    """An attribute or a property; the part of a problem that says what is wrong."""
    if name == "problem" and device.problem:
        return next((words for words in ("hy-smi does not list it", LOST_BY_NUMBER) if words in device.problem), device)
    return getattr(device, name, device.properties.get(name))


CHOSEN = "choose cards by HIP_VISIBLE_DEVICES alone"
ERRORS: dict[str, tuple[Callable[[Path], Machine], type[Exception], str]] = {
    "no tool": (lambda path: folder_with_cards(path).machine(), ToolFailed, "neither on PATH nor in /opt/hyhal/bin"),
    "a tool that fails": (
        lambda path: machine_with_tool(path, [Answer(("*",), "", "Segmentation fault", returncode=139)]),
        ToolFailed, "ended with 139: Segmentation fault",
    ),
    "a card without an address": (
        lambda path: machine_with_tool(path, answers(addresses=(ADDRESSES[0], "N/A"))),
        ToolFailed, "card 1 has neither a UUID nor a PCI address",
    ),
    "AMD's tool of that name": (
        lambda path: beside_amd(machine_with_tool(path, answers(addresses=(ADDRESSES[0], OF_AMD[0])), "rocm-smi")),
        ToolFailed, r"rocm-smi lists 0000:03:00\.0, which is AMD's",
    ),
    "CUDA's variable alone": (
        lambda path: machine_with_tool(path, answers(), CUDA_VISIBLE_DEVICES="0"), BadInput, CHOSEN,
    ),
    "CUDA's variable and another HIP's": (
        lambda path: machine_with_tool(path, answers(), CUDA_VISIBLE_DEVICES="0", HIP_VISIBLE_DEVICES="1"),
        BadInput, f"CUDA_VISIBLE_DEVICES='0'.*{CHOSEN}",
    ),
    "ROCR's variable": (
        lambda path: machine_with_tool(path, answers(), ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1"),
        BadInput, CHOSEN,
    ),
}  # fmt: skip


def beside_amd(machine: Machine) -> Machine:
    MachineFolder(machine.root).pci(*OF_AMD)
    return machine


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_told_is_one_clear_error(case: str, tmp_path: Path) -> None:
    lay_out, error, words = ERRORS[case]
    with pytest.raises(error, match=words):
        BACKEND.devices(lay_out(tmp_path))


def test_driver_and_dtk_are_separate_versions(tmp_path: Path) -> None:
    assert BACKEND.versions(folder_with_cards(tmp_path / "sysfs").machine()) == {
        "driver": "6.3.32-V1.6.0", "dtk": "26.04-rc4",
    }  # fmt: skip
    write_tool(tmp_path / "bin", "hy-smi", [Answer(("--showdriverversion",), "====\nDriver Version: 6.2.26\n====\n")])
    bare = MachineFolder(tmp_path / "root")
    assert BACKEND.versions(bare.machine({"PATH": str(tmp_path / "bin")})) == {"driver": "6.2.26"}
    assert BACKEND.versions(bare.machine()) == {}


@pytest.mark.parametrize(
    ("name", "pci_id", "model"),
    [
        ("K100_AI", "6210", "K100_AI"),
        ("Z100SM", "6210", "K100_AI"),
        ("K100", "", "K100"),
        ("K100_AI", "62b7", "K100"),
        ("K100_AI", "6212", "K100_AI-6212"),
        ("BW", "631a", "BW1000_H"),
        ("BW", "", None),
        ("K100_AI2", "", None),
    ],
)
def test_the_pci_id_goes_before_the_name(name: str, pci_id: str, model: str | None) -> None:
    """A variant has an id of its own, and does not borrow the peaks of the card whose name it has."""
    found = find_model(BACKEND.models(), [name], pci_id)
    assert (found.name if found else None) == model


def test_no_two_models_share_a_pci_id() -> None:
    ids = [pci_id for model in BACKEND.models() for pci_id in model.pci_ids]
    assert len(ids) == len(set(ids))


# --- worker ----------------------------------------------------------------------------------------------------------


def test_a_torch_that_is_not_the_dtk_build_ends_as_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(hip="6.3.26113"))) == ""
    torch: Any = SimpleNamespace(__version__="2.9.0", version=SimpleNamespace(hip=None))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(Unsupported, match=r"cannot use hygon cards: torch\.version\.hip"):
        HygonBackend().activate(0, 1, [Device("a", "K100", "K100", 0)])


@pytest.mark.run
def test_the_record_says_which_ways_attention_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "K100_AI")
    monkeypatch.setattr(torch.backends.cuda, "flash_sdp_enabled", lambda: False)
    state = HygonBackend().framework_state()
    assert (state["device_name"], state["version.hip"]) == ("K100_AI", None)
    assert (state["sdpa.flash"], state["sdpa.math"], state["flash_attn_2_cuda"]) == (False, True, "not found")
    for kind in ("flash", "mem_efficient", "math"):
        monkeypatch.delattr(torch.backends.cuda, f"{kind}_sdp_enabled")  # as before torch 2.0
    assert not [name for name in HygonBackend().framework_state() if name.startswith("sdpa.")]

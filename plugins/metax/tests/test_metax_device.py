"""Which cards are here, what they are called, and the worker's side."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from metax_builders import ANSWERS, SLICED_ANSWERS, folder_with_cards, machine_with_tool, replaced, without
from metax_outputs import (
    FIRST,
    FIRST_UUID,
    GIB,
    MIB,
    NOT_MAPPED,
    SECOND,
    SECOND_UUID,
    SLICE,
    SLICE_UUID,
    VERSIONS,
    transcript,
)

from flagperf.api import Device, Machine
from flagperf.errors import BadInput, ToolFailed
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder
from flagperf_metax.device import MetaxBackend

BACKEND = MetaxBackend()


# --- presence --------------------------------------------------------------------------------------------------------


def card(here: MachineFolder, device_id: str = "0a01", driver: str = "") -> MachineFolder:
    return here.pci(FIRST, "9999", device_id, "0302", driver=driver)


PRESENCE: dict[str, tuple[Callable[[MachineFolder], object], str, Sequence[str]]] = {
    "cards with node and module": (
        lambda here: folder_with_cards(here.root), "present", [f"PCI {FIRST} 9999:0a01", "/dev/mxcd"],
    ),
    "a card without its node": (card, "partial", ["node"]),
    "an unknown id that the vendor's driver holds": (
        lambda here: card(here, "0b77", "METAX").node("/dev/mxcd"), "present", [],
    ),
    "an unknown id that another driver holds": (lambda here: card(here, "0b77", "vfio-pci"), "absent", []),
    "a node alone": (lambda here: here.node("/dev/mxcd"), "partial", []),
    "a node and the module": (lambda here: here.node("/dev/mxcd").module("metax"), "present", []),
    "another vendor's card": (
        lambda here: here.pci(FIRST, "10de", "20b0", "0302").node("/dev/nvidiactl", "/dev/dri/card0"),
        "absent", ["9999"],
    ),
    "a library that stayed behind": (
        lambda here: here.file("/opt/maca/lib/libmxsml.so"), "absent", ["/opt/maca/lib/libmxsml.so"],
    ),
    "a tool alone, which another company has too": (machine_with_tool, "absent", []),
}  # fmt: skip


@pytest.mark.parametrize("case", PRESENCE)
def test_presence_follows_from_the_evidence(case: str, tmp_path: Path) -> None:
    lay_out, state, words = PRESENCE[case]
    folder = MachineFolder(tmp_path)
    lay_out(folder)
    presence = BACKEND.presence(folder.machine({"PATH": str(tmp_path / "bin")}))
    assert presence.state == state
    assert not [each for each in words if each not in f"{presence.reason} {presence.evidence}"], presence
    assert str(tmp_path / "bin") not in presence.reason


# --- identity --------------------------------------------------------------------------------------------------------


def with_nodes(folder: MachineFolder, *addresses: str) -> MachineFolder:
    """Render nodes of these cards."""
    for address in addresses:
        number = 128 + (FIRST, SECOND).index(address)
        folder.file(f"/sys/bus/pci/devices/{address}/drm/renderD{number}/dev", f"226:{number}\n")
        folder.node(f"/dev/dri/renderD{number}")
    return folder


def asked(*answers: Answer, nodes: Sequence[str] = (), **environ: str) -> Callable[[Path], Machine]:
    return lambda path: machine_with_tool(with_nodes(folder_with_cards(path), *nodes), answers or ANSWERS, **environ)


def in_the_drivers_folder(path: Path) -> Machine:
    folder = folder_with_cards(path)
    machine_with_tool(folder)
    (path / "opt/mxdriver").mkdir(parents=True)
    (path / "bin").rename(path / "opt/mxdriver/bin")
    return folder.machine({"PATH": os.environ["PATH"]})


ONE_MAPPED = replaced(ANSWERS, Answer(("-L",), transcript("list_one_mapped")))
ONE_LISTED = replaced(ANSWERS, Answer(("-L",), transcript("list").partition("GPU#1")[0]))
SLICE_TABLE = Answer((), transcript("table_c_sgpu"))
NOT_LISTED = "mx-smi does not list it"
LOST = {"pci_address": [FIRST, SECOND], "physical_index": [0, -1], "problem": ["", NOT_LISTED]}
UNLISTED_NODE = f"/sys/bus/pci/devices/{SECOND}/drm/renderD129/dev"
DEVICES: dict[str, tuple[Callable[[Path], Machine], dict[str, list[object]]]] = {
    "all that is known": (asked(), {
        "id": [FIRST_UUID, SECOND_UUID], "uuid": [FIRST_UUID, SECOND_UUID], "pci_address": [FIRST, SECOND],
        "physical_index": [0, 1], "model": ["C500"] * 2, "memory_bytes": [64 * GIB] * 2,
        "power_limit_watts": ["350.000"] * 2,
    }),
    "the tool in the driver's folder": (in_the_drivers_folder, {"id": [FIRST_UUID, SECOND_UUID]}),
    "variables that agree": (asked(CUDA_VISIBLE_DEVICES="1,0", MACA_VISIBLE_DEVICES="1,0"), {
        "physical_index": [1, 0],
    }),
    "a card that is not mapped, and the tool's name before the PCI id": (asked(*ONE_MAPPED), {
        "id": [SECOND_UUID, FIRST], "physical_index": [0, 1], "model": ["C550"] * 2,
        "problem": ["", NOT_MAPPED["problem"]],
    }),
    "a listed card with its node is not lost": (asked(nodes=[FIRST, SECOND]), {"problem": ["", ""]}),
    "nor is one that is not mapped": (asked(*ONE_MAPPED, nodes=[FIRST, SECOND]), {
        "problem": ["", NOT_MAPPED["problem"]],
    }),
    "a card that the list leaves out, without its node": (
        lambda path: machine_with_tool(folder_with_cards(path).file(UNLISTED_NODE, "226:129\n"), ONE_LISTED),
        {"pci_address": [FIRST]},
    ),
    "a card that the list leaves out": (asked(*ONE_LISTED, nodes=[SECOND]), {
        **LOST, "id": [FIRST_UUID, SECOND], "model": ["C500", "MetaX card"],
    }),
    "a card that the table leaves out": (asked(SLICE_TABLE, nodes=[SECOND]), LOST),
    "a slice in place of its card": (asked(*SLICED_ANSWERS), {
        "id": [SLICE_UUID, SECOND], "pci_address": [FIRST, SECOND], "memory_bytes": [32000 * MIB, None],
        "slice": ["sGPU 2: 50% compute, 31.250 GiB", ""], "model": ["C500"] * 2, "sgpu": [SLICE, None],
        "short_name": ["C500 (sGPU 2: 50% compute, 31.250 GiB)", "C500"], "problem": ["", NOT_MAPPED["problem"]],
    }),
    "a slice that only the table tells": (asked(SLICE_TABLE), {
        "id": [SLICE], "uuid": [""], "memory_bytes": [32000 * MIB],
    }),
    "a release without a list": (asked(Answer((), transcript("table_a0"))), {
        "id": [FIRST, SECOND], "uuid": ["", ""], "model": ["C500"] * 2, "memory_bytes": [64 * GIB] * 2,
    }),
    "a capacity that cannot be read": (asked(*without(ANSWERS, "--show-memory")), {
        "id": [FIRST_UUID, SECOND_UUID], "memory_bytes": [None, None],
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", DEVICES)
def test_devices_are_what_tool_and_bus_say(case: str, tmp_path: Path) -> None:
    lay_out, expected = DEVICES[case]
    devices = BACKEND.devices(lay_out(tmp_path))
    assert {name: [told(device, name) for device in devices] for name in expected} == expected


def told(device: Device, name: str) -> object:
    """An attribute or a property; the part of a problem that says what is wrong."""
    if name == "problem" and NOT_LISTED in device.problem:
        return NOT_LISTED
    return getattr(device, name, device.properties.get(name))


ERRORS: dict[str, tuple[Callable[[Path], Machine], type[Exception], str]] = {
    "variables that disagree": (asked(CUDA_VISIBLE_DEVICES="0", MACA_VISIBLE_DEVICES="1"), BadInput, "disagree"),
    "a tool that lists nothing": (
        asked(Answer(("*",), "", "Permission denied\n", returncode=1)), ToolFailed, "Permission denied",
    ),
    "no tool": (lambda path: folder_with_cards(path).machine(), ToolFailed, "/opt/mxdriver/bin"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_told_is_one_clear_error(case: str, tmp_path: Path) -> None:
    lay_out, error, words = ERRORS[case]
    with pytest.raises(error, match=words):
        BACKEND.devices(lay_out(tmp_path))


# --- versions --------------------------------------------------------------------------------------------------------

NO_MACA = replaced(ANSWERS, Answer(("-j",), transcript("json").replace("3.2.1.7", "unknown")))
OLD_VERSIONS = {"driver": "2.1.3", "maca": "2.0", "mx_smi": "2.0.9", "bios": "1.0.99.0"}


@pytest.mark.parametrize(
    ("answers", "toolkit", "expected"),
    [
        (ANSWERS, "", {**VERSIONS, "mx_smi": "2.2.12"}),
        (without(ANSWERS, "-j"), "", VERSIONS),
        ([Answer((), transcript("table_a0"))], "", OLD_VERSIONS),
        (NO_MACA, "", {"driver": "3.1.4", "mx_smi": "2.2.12", "bios": "1.27.3.0"}),
        (NO_MACA, "Version:2.18.0.8\n", {**VERSIONS, "mx_smi": "2.2.12", "maca": "2.18.0.8"}),
        ([Answer(("*",), "", "Permission denied\n", returncode=1)], "", {}),
    ],
)
def test_driver_and_maca_are_separate_versions(
    answers: Sequence[Answer], toolkit: str, expected: dict[str, str], tmp_path: Path
) -> None:
    folder = folder_with_cards(tmp_path)
    if toolkit:
        folder.file("/opt/maca/Version.txt", toolkit)
    assert BACKEND.versions(machine_with_tool(folder, answers)) == expected


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("MXC500", "C500"),
        ("MetaX C500", "C500"),
        ("MXC550", "C550"),
        ("MXC500X", None),
        ("MXC5000", None),
        ("C500", None),
    ],
)
def test_a_model_is_told_by_its_whole_name(name: str, model: str | None) -> None:
    found = find_model(BACKEND.models(), [name])
    assert (found.name if found else None) == model


# --- worker ----------------------------------------------------------------------------------------------------------


def test_a_torch_of_another_vendor_is_told_by_its_missing_maca_version() -> None:
    assert BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(maca="3.5.3.9", cuda="11.6"))) == ""
    assert "maca" in BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(cuda="12.6", hip=None)))
    assert "maca" in BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(cuda="12.6", maca=None)))

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagperf.api import Device, Machine
from flagperf.builtin.cpu import CpuBackend
from flagperf.errors import BadInput
from flagperf.kit import (
    Card,
    Evidence,
    PciFunction,
    judge,
    link_bytes_per_second,
    make_devices,
    pci_address,
    pci_functions,
    pci_link,
    usable_nodes,
    visible_devices,
    with_render_node,
)
from flagperf.testing import MachineFolder

BUS, NODES, MODULES, TOOLS = ("PCI 0000:07:00.0",), ("/dev/acme0",), ("module acme",), ("/opt/acme/bin/acme-smi",)


@pytest.mark.parametrize(
    ("evidence", "state", "words"),
    [
        (Evidence(BUS, NODES), "present", ""),
        (Evidence(BUS, NODES, MODULES, TOOLS), "present", ""),
        (Evidence(BUS), "partial", "its device node is not here"),
        (Evidence(BUS, (), MODULES, TOOLS), "partial", "its device node is not here"),
        (Evidence((), NODES, MODULES), "present", "not among the known cards on the bus"),
        (Evidence((), NODES), "partial", "no known card on the bus and no kernel module"),
        (Evidence((), NODES, (), TOOLS), "partial", "no known card on the bus"),
        (Evidence((), (), MODULES), "partial", "no card on the bus and no device node"),
        (Evidence((), (), (), TOOLS), "absent", "looked for acme cards; found only /opt/acme/bin/acme-smi"),
        (Evidence(), "absent", "looked for acme cards"),
    ],
)
def test_evidence_decides(evidence: Evidence, state: str, words: str) -> None:
    presence = judge(evidence, "acme cards")
    assert presence.state == state
    assert words in presence.reason
    if state != "absent":
        assert presence.evidence == (*evidence.bus, *evidence.nodes, *evidence.modules, *evidence.tools)


@pytest.mark.parametrize(
    ("printed", "address"),
    [
        ("0000:07:00.0", "0000:07:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("00010000:3B:00.1", "10000:3b:00.1"),
        ("3b:00.0", "0000:3b:00.0"),
        (" 0000:AF:10 ", "0000:af:10.0"),
        ("GPU-0000:07:00.0", ""),
        ("7", ""),
        ("", ""),
    ],
)
def test_an_address_has_one_form_however_tools_print_it(printed: str, address: str) -> None:
    assert pci_address(printed) == address


def test_functions_of_one_vendor_with_their_class(tmp_path: Path) -> None:
    machine = (
        MachineFolder(tmp_path)
        .pci("0000:07:00.0", "10ab", "0a01", "0302")
        .pci("0000:07:00.1", "10ab", "0a02", "0403")
        .pci("0000:08:00.0", "ffff", "0a01", "0302")
        .machine()
    )
    assert pci_functions(machine, "10ab") == [
        PciFunction("0000:07:00.0", "10ab", "0a01", "0302"),
        PciFunction("0000:07:00.1", "10ab", "0a02", "0403"),
    ]
    assert pci_functions(machine, "0000") == []


def test_nodes_that_the_kernel_refuses_are_not_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MachineFolder(tmp_path).node("/dev/acme0", "/dev/acme1", "/dev/acmectl").machine()
    assert usable_nodes(machine, "/dev/acme[0-9]*") == {"acme0", "acme1"}
    monkeypatch.setattr(os, "access", lambda path, mode: path.name == "acme1" and mode == os.R_OK | os.W_OK)
    assert usable_nodes(machine, "/dev/acme[0-9]*") == {"acme1"}


def test_a_render_node_is_found_by_the_function_that_it_belongs_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = MachineFolder(tmp_path).node("/dev/dri/renderD128", "/dev/dri/renderD129")
    for place, number in (("07", 128), ("08", 129), ("09", 130)):
        folder.pci(f"0000:{place}:00.0", "10ab", "0a01", "0302")
        folder.file(f"/sys/bus/pci/devices/0000:{place}:00.0/drm/renderD{number}/dev")
    functions = pci_functions(folder.machine(), "10ab")
    assert with_render_node(folder.machine(), functions) == functions[:2]
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "renderD128" and bool(mode))
    assert with_render_node(folder.machine(), functions) == functions[1:2]


ADDRESS = "0000:07:00.0"


def link_of(folder: Path, now: str, width: str, most: str = "") -> dict[str, str]:
    machine = MachineFolder(folder).pci(ADDRESS, "10ab", "0a01", "0302")
    files = {"current_link_speed": now, "current_link_width": width, "max_link_speed": most}
    for name, text in files.items():
        if text:
            machine.file(f"/sys/bus/pci/devices/{ADDRESS}/{name}", f"{text}\n")
    return pci_link(machine.machine(), ADDRESS)


@pytest.mark.parametrize(
    ("now", "width", "most", "expected"),
    [
        ("16.0 GT/s PCIe", "16", "16.0 GT/s PCIe", {"pcie": "Gen4 x16"}),
        ("8 GT/s", "8", "", {"pcie": "Gen3 x8"}),
        ("2.5 GT/s PCIe", "16", "32.0 GT/s PCIe", {"pcie": "Gen5 x16", "pcie_now": "Gen1 x16"}),
        ("Unknown speed", "16", "16.0 GT/s PCIe", {}),
        ("16.0 GT/s PCIe", "63", "16.0 GT/s PCIe", {}),
        ("16.0 GT/s PCIe", "255", "", {}),
        ("16.0 GT/s PCIe", "0", "", {}),
        ("99.0 GT/s PCIe", "16", "", {}),
        ("", "16", "16.0 GT/s PCIe", {}),
        ("16.0 GT/s PCIe", "", "", {}),
        ("16.0 GT/s PCIe", "wide", "", {}),
    ],
)
def test_what_sysfs_says_and_nothing_where_it_does_not(
    tmp_path: Path, now: str, width: str, most: str, expected: dict[str, str]
) -> None:
    assert link_of(tmp_path, now, width, most) == expected
    assert pci_link(MachineFolder(tmp_path).machine(), "") == pci_link(Machine(tmp_path / "none"), ADDRESS) == {}


@pytest.mark.parametrize(
    ("link", "rate"),
    [("Gen4 x16", 31.5e9), ("Gen3 x16", 15.76e9), ("Gen5 x8", 31.5e9), ("", None), ("Gen9 x16", None), ("Gen4", None)],
)
def test_the_rate_is_that_of_one_direction(link: str, rate: float | None) -> None:
    assert link_bytes_per_second(link) == (rate and pytest.approx(rate, rel=1e-3))


def test_devices_have_it_beside_what_the_vendor_says(tmp_path: Path) -> None:
    link_of(tmp_path, "16.0 GT/s PCIe", "16")
    card = Card(0, ("A1",), pci_address=ADDRESS, properties={"serial": "7"})
    (device,) = make_devices(CpuBackend(), MachineFolder(tmp_path).machine(), [card])
    assert device.properties == {"pcie": "Gen4 x16", "serial": "7"}


UUIDS = ("GPU-aa1", "GPU-aa2", "GPU-bb1")
CARDS = [Device(uuid, "A1", "A1", index, uuid=uuid) for index, uuid in enumerate(UUIDS)]


LOST = Device("0000:af:00.0", "A1", "A1", -1, pci_address="0000:af:00.0", problem="lost")


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2, -1]),
        ("0,1,2", [0, 1, 2]),
        ("2,1", [2, 1]),
        ("GPU-bb1,0", [2, 0]),
        ("GPU-bb", [2]),
        ("GPU-aa", [-1]),  # two begin like that
        (
            "0,7,1",
            [0, -1],
        ),  # hides what follows, but not a lost card, which it may mean
        ("GPU-aa1,GPU-cc1", [0, -1]),
        ("1,1,0", [1]),
        ("0,-1", [0]),
        ("", []),
        ("-1", []),
        (" 1 , 0 ", [1, 0]),
    ],
)
def test_a_variable_narrows_and_reorders(value: str | None, indices: list[int]) -> None:
    environ = {"OTHER_VISIBLE_DEVICES": "0"} | ({} if value is None else {"ACME_VISIBLE_DEVICES": value})
    visible = visible_devices([*CARDS, LOST], environ, ("ACME_VISIBLE_DEVICES",))
    assert [device.physical_index for device in visible] == indices


def test_two_that_agree_are_one_and_two_that_do_not_are_refused() -> None:
    both = ("ACME_VISIBLE_DEVICES", "OLD_VISIBLE_DEVICES")
    assert len(visible_devices(CARDS, dict.fromkeys(both, "1"), both)) == 1
    with pytest.raises(BadInput, match=r"ACME_VISIBLE_DEVICES='1', OLD_VISIBLE_DEVICES='0'.*set them equal"):
        visible_devices(CARDS, {"ACME_VISIBLE_DEVICES": "1", "OLD_VISIBLE_DEVICES": "0"}, both)

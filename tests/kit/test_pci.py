from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagperf.kit import PciFunction, pci_address, pci_functions, usable_nodes, with_render_node
from flagperf.testing import MachineFolder


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

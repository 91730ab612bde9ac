from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from kunlun_builders import ADDRESSES, TOTAL_MIB, UUIDS, answers, folder_with_cards, machine_with_tool, transcript

from flagperf.api import Device, Machine
from flagperf.errors import BadInput, ToolFailed, Unsupported
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_kunlun.device import KunlunBackend

BACKEND = KunlunBackend()


# --- presence --------------------------------------------------------------------------------------------------------


def test_cards_on_the_bus_with_their_nodes_are_present(tmp_path: Path) -> None:
    presence = BACKEND.presence(folder_with_cards(tmp_path).machine())
    assert presence.state == "present"
    assert presence.evidence == (
        f"PCI {ADDRESSES[0]} 1d22:3688",
        f"PCI {ADDRESSES[1]} 1d22:3688",
        "/dev/xpuctrl",
        "/dev/xpu0",
        "/dev/xpu1",
        "/sys/module/kunlun",
    )


@pytest.mark.parametrize(("device_id", "class_id"), [("3684", "1200"), ("3684", "0780"), ("3685", "1200")])
def test_k_and_r_series_and_virtual_functions_count(tmp_path: Path, device_id: str, class_id: str) -> None:
    folder = MachineFolder(tmp_path).pci(ADDRESSES[0], "1d22", device_id, class_id).node("/dev/xpuctrl", "/dev/xpu3")
    assert BACKEND.presence(folder.machine()).state == "present"


def test_a_disk_of_the_same_vendor_is_no_card(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).pci("0000:02:00.0", "1d22", "1380", "0108")
    assert BACKEND.presence(folder.machine()).state == "absent"


def test_the_pcie_cards_foreign_vendor_id_counts_with_the_control_node_only(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).pci("0000:01:00.0", "2057", "3686", "1200")
    assert BACKEND.presence(folder.machine()).state == "absent"
    assert BACKEND.presence(folder.node("/dev/xpuctrl", "/dev/xpu0").machine()).state == "present"


@pytest.mark.parametrize(
    ("nodes", "missing"),
    [((), "its device node"), (("/dev/xpu0",), "/dev/xpuctrl"), (("/dev/xpuctrl",), "/dev/xpu0 or another")],
)
def test_on_the_bus_without_all_its_nodes_is_partial(tmp_path: Path, nodes: tuple[str, ...], missing: str) -> None:
    folder = MachineFolder(tmp_path).pci(ADDRESSES[0], "1d22", "3688", "1200").node(*nodes)
    presence = BACKEND.presence(folder.machine())
    assert presence.state == "partial" and missing in presence.reason and "map it" in presence.reason


def test_nodes_without_a_card_on_the_bus_count_with_the_module_only(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).node("/dev/xpuctrl", "/dev/xpu0")
    assert BACKEND.presence(folder.machine()).state == "partial"
    assert BACKEND.presence(folder.module("xpu_driver").machine()).state == "present"


def test_intels_tool_is_no_evidence(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin", "xpu-smi", [Answer(("*",), transcript("intel_discovery"))])
    folder = MachineFolder(tmp_path / "root").pci("0000:4d:00.0", "8086", "56c0", "0380").node("/dev/dri/card0")
    presence = BACKEND.presence(folder.machine({"PATH": str(tmp_path / "bin")}))
    assert presence.state == "absent" and "xpu-smi" in presence.reason and str(tmp_path) not in presence.reason


def test_a_card_in_error_state_is_among_the_evidence(tmp_path: Path) -> None:
    folder = (
        folder_with_cards(tmp_path).file("/proc/xpu/dev0/state", "NORMAL\n").file("/proc/xpu/dev1/state", "ERROR\n")
    )
    assert "/proc/xpu/dev1/state is ERROR" in BACKEND.presence(folder.machine()).evidence


def in_error(machine: Machine, number: int) -> Machine:
    MachineFolder(machine.root).file(f"/proc/xpu/dev{number}/state", "ERROR\n")
    return machine


def test_a_card_in_error_state_cannot_be_used_and_is_found_by_its_node_not_by_its_place(tmp_path: Path) -> None:
    devices = BACKEND.devices(in_error(machine_with_tool(tmp_path, answers()), 1))
    assert [device.problem for device in devices] == ["/proc/xpu/dev1/state is ERROR", ""]


def test_the_older_table_tells_the_node_of_a_card_in_error_state(tmp_path: Path) -> None:
    said = [Answer(("-m",), transcript("machine_k200_milliwatts")), Answer((), transcript("table_xre4_8_columns"))]
    devices = BACKEND.devices(in_error(machine_with_tool(tmp_path, said), 1))
    assert [device.problem for device in devices] == ["", "/proc/xpu/dev1/state is ERROR"]


def test_a_card_of_which_the_tool_says_an_error_cannot_be_used(tmp_path: Path) -> None:
    machine, details, table = answers()
    said = [
        machine,
        details,
        Answer((), table.stdout.replace("|                    0 |", "|                    3 |", 1)),
    ]
    sick, healthy = BACKEND.devices(machine_with_tool(tmp_path, said))
    assert "3 uncorrectable memory errors" in sick.problem and healthy.problem == ""


def test_a_release_whose_machine_lines_are_not_known_is_read_by_its_table(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path / "new", answers()[1:]))
    assert [(device.id, device.memory_bytes) for device in devices] == [(uuid, TOTAL_MIB << 20) for uuid in UUIDS]
    with pytest.raises(ToolFailed, match="-m ended with 1"):
        BACKEND.devices(machine_with_tool(tmp_path / "neither", answers()[1:2]))


def test_a_card_that_the_tool_leaves_out_is_found_on_the_bus_if_its_node_is_here(tmp_path: Path) -> None:
    first_only = [Answer(("-m",), transcript("machine_p800").splitlines(keepends=True)[0])]
    machine = machine_with_tool(tmp_path, first_only)
    whole, lost = BACKEND.devices(machine)
    assert (whole.problem, lost.id, lost.model) == ("", ADDRESSES[1], "Kunlunxin card")
    assert "xpu-smi does not list it" in lost.problem
    (machine.root / "dev/xpu1").unlink()
    assert [device.id for device in BACKEND.devices(machine)] == [ADDRESSES[0]]


@pytest.mark.parametrize("bus", ["the host's", "none"])
def test_more_nodes_than_cards_say_that_some_are_lost_where_the_bus_does_not(tmp_path: Path, bus: str) -> None:
    """A container with the host's bus and the nodes of its own cards, or without a bus."""
    first_only = [Answer(("-m",), transcript("machine_p800").splitlines(keepends=True)[0])]
    machine = machine_with_tool(tmp_path, first_only)
    if bus == "none":
        shutil.rmtree(machine.root / "sys/bus/pci")
    else:
        MachineFolder(machine.root).pci("0000:c4:00.0", "1d22", "3688", "1200")
    whole, lost = BACKEND.devices(machine)
    assert (whole.problem, lost.id, lost.physical_index) == ("", "unlisted-1", -1)
    assert "lists 1 of the 2 cards whose nodes are here (/dev/xpu0, /dev/xpu1)" in lost.problem
    (machine.root / "dev/xpu1").unlink()
    assert [device.id for device in BACKEND.devices(machine)] == [ADDRESSES[0]]


def one_of_two_listed(tmp_path: Path) -> Machine:
    """The first card, whose node is /dev/xpu1; the other node, /dev/xpu0, is in error."""
    lines, details = transcript("machine_p800").splitlines(keepends=True), transcript("query_p800")
    at = details.index("XPU 00000000:B4")
    said = [Answer(("-m",), lines[0]), Answer(("-q",), details[:at].replace(": 2\n", ": 1\n"))]
    return in_error(machine_with_tool(tmp_path, said), 0)


def test_a_node_in_error_that_no_listed_card_has_is_a_lost_card(tmp_path: Path) -> None:
    machine = one_of_two_listed(tmp_path)
    whole, lost = BACKEND.devices(machine)
    assert (whole.id, whole.problem, lost.id) == (UUIDS[0], "", ADDRESSES[1])
    assert "on the bus" in lost.problem and "/proc/xpu/dev0/state is ERROR" in lost.problem


def test_a_node_in_error_stands_for_its_card_where_the_bus_has_lost_it_too(tmp_path: Path) -> None:
    machine = one_of_two_listed(tmp_path)
    shutil.rmtree(machine.root / "sys/bus/pci/devices" / ADDRESSES[1])
    whole, lost = BACKEND.devices(machine)
    assert (whole.problem, lost.id, lost.model, lost.physical_index) == ("", "/dev/xpu0", "Kunlunxin card", -1)
    assert lost.problem.startswith("/proc/xpu/dev0/state is ERROR") and "lists no card with this node" in lost.problem
    (machine.root / "dev/xpu0").unlink()  # another container's
    assert [device.id for device in BACKEND.devices(machine)] == [UUIDS[0]]
    assert "/proc/xpu/dev0/state is ERROR" in BACKEND.presence(machine).evidence


def test_a_state_of_nobody_knows_which_card_blames_none_and_is_shown(tmp_path: Path) -> None:
    machine = in_error(machine_with_tool(tmp_path, answers()[:1]), 1)
    *listed, unknown = BACKEND.devices(machine)
    assert [device.problem for device in listed] == ["", ""]
    assert unknown.id == "/dev/xpu1" and "does not tell which card has this node" in unknown.problem


# --- identity --------------------------------------------------------------------------------------------------------


def test_cards_have_model_uuid_address_and_capacity(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, answers()))
    assert [(device.id, device.pci_address) for device in devices] == list(zip(UUIDS, ADDRESSES, strict=True))
    assert [device.physical_index for device in devices] == [0, 1]
    assert {(device.model, device.short_name, device.slice) for device in devices} == {("P800-OAM", "P800-OAM", "")}
    assert {device.memory_bytes for device in devices} == {TOTAL_MIB << 20}
    assert devices[0].properties == {
        "serial": "02K15K700AB00417",
        "chip": "0",
        "firmware": "1.0:2.7:1.40.1.8",
        "power_limit_watts": "400.00",
        "pci_id": "3688",
    }


def test_a_release_without_details_gives_cards_by_address(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, answers()[:1], tool="xpu_smi"))
    assert [(device.id, device.uuid) for device in devices] == [(address, "") for address in ADDRESSES]


def test_a_uuid_that_says_nothing_is_no_cards_id(tmp_path: Path) -> None:
    said = [Answer(each.arguments, re.sub(r"(XPU UUID +: ).*", r"\1N/A", each.stdout)) for each in answers()]
    devices = BACKEND.devices(machine_with_tool(tmp_path, said))
    assert [(device.id, device.uuid) for device in devices] == [(address, "") for address in ADDRESSES]
    assert devices[0].properties["power_limit_watts"] == "400.00"


def test_a_model_that_the_tool_does_not_know_is_no_model(tmp_path: Path) -> None:
    said = [Answer(("-m",), transcript("machine_p800").replace('"P800 OAM"', "N/A"))]
    assert {device.model for device in BACKEND.devices(machine_with_tool(tmp_path, said))} == {"Kunlunxin card"}


def test_two_devices_on_one_address_are_told_apart_by_serial_and_chip(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, [Answer(("-m",), transcript("machine_k200_milliwatts"))]))
    assert [device.id for device in devices] == ["0200210711000123/0", "0200210711000123/1"]
    assert {device.pci_address for device in devices} == {"0000:06:00.0"}


def test_slices_are_said_to_be_slices_with_their_own_memory(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, [Answer(("-m",), transcript("machine_r200_sriov"))]))
    assert [(device.slice, device.memory_bytes) for device in devices] == [
        ("R200-PF, what its virtual functions leave", 13568 << 20),
        ("virtual function R200-VF-5G", 4006 << 20),
    ]
    assert not [peak for peak in BACKEND.peaks() if peak.model in {device.model for device in devices}]


def test_a_function_that_the_bus_calls_virtual_is_a_slice_whatever_its_name(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, answers())
    MachineFolder(machine.root).pci(ADDRESSES[1], "1d22", "3685", "1200")
    assert [device.slice for device in BACKEND.devices(machine)] == ["", "virtual function P800 OAM"]


def test_without_an_answer_of_the_tool_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="xpu-smi is neither on PATH nor in /usr/local/bin"):
        BACKEND.devices(folder_with_cards(tmp_path / "no tool").machine())
    broken = [Answer(("*",), transcript("error_no_device"))]
    with pytest.raises(ToolFailed, match="Initialize default context"):
        BACKEND.devices(machine_with_tool(tmp_path / "broken", broken))


@pytest.mark.parametrize("name", ["XPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
def test_either_visibility_variable_narrows_and_reorders(tmp_path: Path, name: str) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, answers(), **{name: "1,0"}))
    assert [device.id for device in devices] == [UUIDS[1], UUIDS[0]]


def test_visibility_variables_that_disagree_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="disagree"):
        BACKEND.devices(
            machine_with_tool(tmp_path, answers(), XPU_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1"),
        )


def test_a_debug_level_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="BKCL_DEBUG='INFO' is set, and must be a number"):
        BACKEND.devices(machine_with_tool(tmp_path, answers(), BKCL_DEBUG="INFO"))


def test_driver_and_runtime_are_separate_versions(tmp_path: Path) -> None:
    assert BACKEND.versions(machine_with_tool(tmp_path, answers())) == {"driver": "5.0.33.2", "xre": "5.0.33"}


def test_a_container_that_answers_to_other_names_has_no_driver_version(tmp_path: Path) -> None:
    said = [Answer((), transcript("table_p800_alias_container"))]
    assert BACKEND.versions(machine_with_tool(tmp_path, said)) == {}
    assert BACKEND.versions(MachineFolder(tmp_path / "nothing").machine()) == {}


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("R200", "R200"),
        ("R300", "R300"),
        ("P800 OAM", "P800-OAM"),
        ("P800 PCIe", "P800-PCIe"),
        ("P800", None),
        ("R200-VF-5G", None),
        ("R200-PF", None),
        ("K200", None),
    ],
)
def test_the_tools_name_tells_the_model_and_a_slice_has_none(name: str, model: str | None) -> None:
    found = find_model(BACKEND.models(), [name], "3684")
    assert (found.name if found else None) == model


# --- worker ----------------------------------------------------------------------------------------------------------


def torch_that_sees(num_cards: int, name: str = "GPU", has_cudnn: bool = False) -> SimpleNamespace:
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
    monkeypatch.setenv("DISABLE_XPYTORCH", "1")
    assert "DISABLE_XPYTORCH=1" in BACKEND.wrong_build(torch_that_sees(8))


def test_a_torch_that_sees_cards_but_was_not_patched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISABLE_XPYTORCH", raising=False)
    stock = torch_that_sees(8, "NVIDIA A100-SXM4-40GB", has_cudnn=True)
    assert "has not patched torch" in BACKEND.wrong_build(stock)
    stock.nn.functional.linear = object()
    assert BACKEND.wrong_build(stock) == ""


def test_activating_without_torch_xmlir_ends_as_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_that_sees(8))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch_xmlir", None)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=r"cannot use kunlun cards: .*torch_xmlir"):
        KunlunBackend().activate(0, 1, [Device("a", "R300", "R300", 0)])


@pytest.mark.run
@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "does nothing: models run eagerly"), ("true", "does nothing: models run eagerly"), ("false", "compiles")],
)
def test_the_record_says_whether_torch_compile_does_anything(
    monkeypatch: pytest.MonkeyPatch, value: str | None, said: str
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    monkeypatch.delenv("XMLIR_ENABLE_MOCK_TORCH_COMPILE", raising=False)
    if value is not None:
        monkeypatch.setenv("XMLIR_ENABLE_MOCK_TORCH_COMPILE", value)
    monkeypatch.setenv("XMLIR_D_FORCE_FALLBACK", "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "OAM_ID")
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    state = KunlunBackend().framework_state()
    assert state["torch_xmlir.patched"] == "cudnn off, device name"
    assert state["torch.compile"].startswith(said)
    assert state["device_name"] == "GPU"
    assert (state["XMLIR_D_FORCE_FALLBACK"], state["CUDA_DEVICE_ORDER"]) == ("1", "OAM_ID")

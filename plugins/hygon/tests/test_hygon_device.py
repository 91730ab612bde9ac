from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hygon_builders import (
    ADDRESSES,
    TOTAL_MIB,
    answers,
    as_text,
    folder_with_cards,
    machine_with_tool,
    table,
    with_cpu_functions,
)

from flagperf.api import Device
from flagperf.errors import BadInput, ToolFailed, Unsupported
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_hygon.device import HygonBackend

BACKEND = HygonBackend()


# --- presence --------------------------------------------------------------------------------------------------------


def test_a_card_on_the_bus_with_its_node_is_present(tmp_path: Path) -> None:
    presence = BACKEND.presence(folder_with_cards(tmp_path).machine())
    assert presence.state == "present"
    assert presence.evidence == (
        f"PCI {ADDRESSES[0]} 1d94:6210 class 0380",
        f"PCI {ADDRESSES[1]} 1d94:6210 class 0380",
        "/dev/kfd",
        "/sys/module/hycu",
    )


def test_a_server_with_hygon_cpus_has_no_hygon_card(tmp_path: Path) -> None:
    presence = BACKEND.presence(with_cpu_functions(MachineFolder(tmp_path)).machine())
    assert presence.state == "absent" and "1d94" in presence.reason


def test_hygon_cpus_beside_another_vendors_cards_are_no_hygon_card(tmp_path: Path) -> None:
    folder = with_cpu_functions(MachineFolder(tmp_path)).pci("0000:07:00.0", "10de", "20b2", "0302")
    assert BACKEND.presence(folder.node("/dev/nvidiactl").machine()).state == "absent"


def test_a_known_device_id_counts_whatever_its_class(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).pci(ADDRESSES[0], "1d94", "631a", "0b40").node("/dev/kfd")
    assert BACKEND.presence(folder.machine()).state == "present"


def test_on_the_bus_without_its_node_is_partial(tmp_path: Path) -> None:
    presence = BACKEND.presence(MachineFolder(tmp_path).pci(ADDRESSES[0], "1d94", "6210", "0380").machine())
    assert presence.state == "partial" and "not here" in presence.reason


def test_a_node_without_a_card_on_the_bus_counts_with_the_module_only(tmp_path: Path) -> None:
    node = MachineFolder(tmp_path).node("/dev/kfd")
    assert BACKEND.presence(node.machine()).state == "partial"
    assert BACKEND.presence(node.module("hydcu").machine()).state == "present"


def test_a_module_that_is_not_live_is_no_evidence(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).file("/sys/module/hycu/initstate", "going\n")
    assert BACKEND.presence(folder.machine()).state == "absent"


def test_kfd_beside_an_amd_card_is_amds(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).pci("0000:03:00.0", "1002", "740f", "0380").node("/dev/kfd")
    assert BACKEND.presence(folder.machine()).state == "absent"
    with_card = folder.pci(ADDRESSES[0], "1d94", "6210", "0380")
    assert BACKEND.presence(with_card.machine()).state == "partial"
    assert BACKEND.presence(with_card.module("hycu").machine()).state == "present"


def test_a_tool_alone_is_no_card(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin", "rocm-smi", answers())
    folder = MachineFolder(tmp_path / "root").file("/opt/hyhal/lib/librocm_smi64.so")
    presence = BACKEND.presence(folder.machine({"PATH": str(tmp_path / "bin")}))
    assert presence.state == "absent" and "/opt/hyhal/lib/librocm_smi64.so" in presence.reason


# --- identity --------------------------------------------------------------------------------------------------------


def test_cards_have_model_address_and_capacity(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, answers()))
    assert [device.id for device in devices] == list(ADDRESSES)
    assert [device.physical_index for device in devices] == [0, 1]
    assert {device.memory_bytes for device in devices} == {TOTAL_MIB << 20}
    assert {(device.model, device.short_name) for device in devices} == {("K100_AI", "K100_AI")}
    assert devices[0].properties == {"tool_index": "0", "tool_name": "K100_AI", "pci_id": "6210"}


def test_the_pci_id_tells_the_model_where_the_tool_says_another_name(tmp_path: Path) -> None:
    (first, _) = BACKEND.devices(machine_with_tool(tmp_path, answers(name="Z100SM")))
    assert (first.model, first.properties["tool_name"]) == ("K100_AI", "Z100SM")


def test_a_variant_does_not_borrow_the_peaks_of_the_card_whose_name_it_has(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, answers(name="K100_AI"))
    for address in ADDRESSES:
        MachineFolder(machine.root).pci(address, "1d94", "6212", "0380")
    (first, _) = BACKEND.devices(machine)
    assert [peak for peak in BACKEND.peaks() if peak.model == first.model] == []


def test_an_unknown_card_keeps_its_own_name_and_has_no_peaks(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, answers(name="BW"))
    for address in ADDRESSES:
        MachineFolder(machine.root).pci(address, "1d94", "9999", "0380")
    (first, _) = BACKEND.devices(machine)
    assert first.model == "BW"
    assert [peak for peak in BACKEND.peaks() if peak.model == first.model] == []


def test_a_name_that_says_nothing_is_no_model(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, answers(name="N/A"))
    for address in ADDRESSES:
        MachineFolder(machine.root).pci(address, "1d94", "9999", "0380")
    assert {device.model for device in BACKEND.devices(machine)} == {"Hygon 9999"}


def test_a_card_without_an_address_is_named(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, answers(addresses=(ADDRESSES[0], "N/A")))
    with pytest.raises(ToolFailed, match="card 1 has neither a UUID nor a PCI address"):
        BACKEND.devices(machine)


def test_cards_that_the_tool_numbers_from_1_are_torchs_from_0(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, answers(first=1)))
    assert [(device.id, device.physical_index) for device in devices] == [(ADDRESSES[0], 0), (ADDRESSES[1], 1)]
    assert [device.properties["tool_index"] for device in devices] == ["1", "2"]


def test_cards_of_which_a_container_has_some_are_torchs_from_0(tmp_path: Path) -> None:
    some = [
        Answer(each.arguments, each.stdout.replace("card1", "card5").replace("card0", "card2")) for each in answers()
    ]
    devices = BACKEND.devices(machine_with_tool(tmp_path, some))
    assert [(device.id, device.physical_index) for device in devices] == [(ADDRESSES[0], 0), (ADDRESSES[1], 1)]


def test_older_releases_call_the_tool_rocm_smi(tmp_path: Path) -> None:
    assert len(BACKEND.devices(machine_with_tool(tmp_path, answers(), tool="rocm-smi"))) == 2


def test_the_tool_is_found_in_its_own_folder(tmp_path: Path) -> None:
    folder = folder_with_cards(tmp_path)
    memory = tmp_path / "memory"
    memory.write_text("0\n0\n")
    write_tool(tmp_path / "opt/hyhal/bin", "hy-smi", answers(), memory)
    assert len(BACKEND.devices(folder.machine())) == 2


def test_a_metric_that_fails_does_not_remove_the_cards(tmp_path: Path) -> None:
    only_bus = [each for each in answers() if each.arguments[0] == "--showbus"]
    devices = BACKEND.devices(machine_with_tool(tmp_path, only_bus))
    assert [device.memory_bytes for device in devices] == [None, None]
    assert "PARSE ERROR" in devices[0].properties["memory_missing"]
    assert devices[0].model == "K100_AI"


def test_a_card_that_the_tool_leaves_out_is_found_on_the_bus_if_its_node_is_here(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, answers(addresses=ADDRESSES[:1]))
    assert [device.id for device in BACKEND.devices(machine)] == [ADDRESSES[0]]
    folder = MachineFolder(machine.root).file(f"/sys/bus/pci/devices/{ADDRESSES[1]}/drm/renderD129/dev", "226:129\n")
    assert [device.id for device in BACKEND.devices(machine)] == [ADDRESSES[0]]
    folder.node("/dev/dri/renderD129")
    whole, lost = BACKEND.devices(machine)
    assert (whole.problem, lost.id, lost.model) == ("", ADDRESSES[1], "K100_AI")
    assert "hy-smi does not list it" in lost.problem


def test_a_release_without_json_is_read_as_text(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, as_text(answers())))
    assert devices == BACKEND.devices(machine_with_tool(tmp_path, answers()))


def test_a_release_of_which_only_the_table_is_known_gives_cards_by_its_numbers(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, [table()]))
    assert [(device.id, device.physical_index, device.pci_address) for device in devices] == [
        ("hy-smi-0", 0, ""),
        ("hy-smi-1", 1, ""),
    ]
    assert {(device.model, device.memory_bytes) for device in devices} == {("K100_AI", None)}
    assert "whole percents" in devices[0].properties["memory_missing"]


def test_a_card_that_the_table_leaves_out_is_counted_by_the_nodes_of_the_bus(tmp_path: Path) -> None:
    one = "".join(line for line in table().stdout.splitlines(keepends=True) if not line.startswith("1 "))
    machine = machine_with_tool(tmp_path, [Answer((), one)])
    folder = MachineFolder(machine.root)
    for number, address in enumerate(ADDRESSES, 128):
        assert [device.problem for device in BACKEND.devices(machine)] == [""]
        folder.file(f"/sys/bus/pci/devices/{address}/drm/renderD{number}/dev", f"226:{number}\n")
        folder.node(f"/dev/dri/renderD{number}")
    whole, lost = BACKEND.devices(machine)
    assert (whole.id, whole.problem) == ("hy-smi-0", "")
    assert (lost.id, lost.model, lost.physical_index) == ("unlisted-1", "Hygon card", -1)
    assert f"hy-smi lists 1 of the 2 cards on the bus whose nodes are here ({', '.join(ADDRESSES)})" in lost.problem
    write_tool(tmp_path / "bin", "hy-smi", [table()])
    assert [device.problem for device in BACKEND.devices(machine)] == ["", ""]


def test_models_are_not_told_by_the_bus_where_it_has_two(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, [table()])
    MachineFolder(machine.root).pci(ADDRESSES[1], "1d94", "62b7", "0380")
    assert {device.model for device in BACKEND.devices(machine)} == {"Hygon card"}


def test_amds_tool_of_the_same_name_is_refused_by_the_bus(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, answers(addresses=(ADDRESSES[0], "0000:03:00.0")), tool="rocm-smi")
    MachineFolder(machine.root).pci("0000:03:00.0", "1002", "740f", "0380")
    with pytest.raises(ToolFailed, match=r"rocm-smi lists 0000:03:00\.0, which is AMD's"):
        BACKEND.devices(machine)


def test_without_an_answer_of_the_tool_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="hy-smi is neither on PATH nor in /opt/hyhal/bin"):
        BACKEND.devices(folder_with_cards(tmp_path / "no tool").machine())
    broken = [Answer(("*",), "", "Segmentation fault", returncode=139)]
    with pytest.raises(ToolFailed, match="ended with 139: Segmentation fault"):
        BACKEND.devices(machine_with_tool(tmp_path / "broken", broken))


def test_a_slice_is_said_to_be_one_and_has_no_borrowed_capacity(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, answers(), VHCU_VISIBLE_DEVICES="0,1"))
    assert {(device.slice, device.memory_bytes) for device in devices} == {("vHCU 0,1", None)}


def test_hip_visible_devices_narrows_and_reorders(tmp_path: Path) -> None:
    devices = BACKEND.devices(machine_with_tool(tmp_path, answers(), HIP_VISIBLE_DEVICES="1,0"))
    assert [device.id for device in devices] == [ADDRESSES[1], ADDRESSES[0]]


@pytest.mark.parametrize(
    "environ",
    [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"},
        {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"},
    ],
)
def test_other_visibility_variables_are_refused_with_the_way_on(tmp_path: Path, environ: dict[str, str]) -> None:
    name = next(iter(environ))
    with pytest.raises(BadInput, match=f"{name}=.*choose cards by HIP_VISIBLE_DEVICES alone"):
        BACKEND.devices(machine_with_tool(tmp_path, answers(), **environ))


def test_a_variable_that_says_the_same_is_no_problem(tmp_path: Path) -> None:
    same = {"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}
    assert [each.id for each in BACKEND.devices(machine_with_tool(tmp_path, answers(), **same))] == [ADDRESSES[1]]


def test_driver_and_dtk_are_separate_versions(tmp_path: Path) -> None:
    assert BACKEND.versions(folder_with_cards(tmp_path).machine()) == {"driver": "6.3.32-V1.6.0", "dtk": "26.04-rc4"}


def test_the_tool_says_the_driver_where_sysfs_does_not(tmp_path: Path) -> None:
    said = [Answer(("--showdriverversion",), "====\nDriver Version: 6.2.26\n====\n")]
    write_tool(tmp_path / "bin", "hy-smi", said)
    machine = MachineFolder(tmp_path / "root").machine({"PATH": str(tmp_path / "bin")})
    assert BACKEND.versions(machine) == {"driver": "6.2.26"}
    assert BACKEND.versions(MachineFolder(tmp_path / "nothing").machine()) == {}


# --- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "pci_id", "model"),
    [
        (["K100_AI"], "6210", "K100_AI"),
        (["Z100SM"], "6210", "K100_AI"),
        (["K100"], "", "K100"),
        (["K100_AI"], "62b7", "K100"),
        (["BW"], "631a", "BW1000_H"),
        (["BW"], "", None),
        (["K100_AI2"], "", None),
    ],
)
def test_the_pci_id_goes_before_the_name(names: list[str], pci_id: str, model: str | None) -> None:
    found = find_model(BACKEND.models(), names, pci_id)
    assert (found.name if found else None) == model


def test_no_two_models_share_a_pci_id() -> None:
    ids = [pci_id for model in BACKEND.models() for pci_id in model.pci_ids]
    assert len(ids) == len(set(ids))


# --- worker ----------------------------------------------------------------------------------------------------------


def test_a_torch_that_is_not_the_dtk_build_is_named() -> None:
    assert BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(hip="6.3.26113"))) == ""
    assert "torch.version.hip" in BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(cuda="12.4", hip=None)))


def test_activating_with_another_torch_ends_as_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(__version__="2.9.0", version=SimpleNamespace(hip=None))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="cannot use hygon cards"):
        HygonBackend().activate(0, 1, [Device("a", "K100", "K100", 0)])


@pytest.mark.run
def test_a_torch_before_2_has_no_switches_of_attention_to_record(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Z100L")
    for kind in ("flash", "mem_efficient", "math"):
        monkeypatch.delattr(torch.backends.cuda, f"{kind}_sdp_enabled")
    assert not [name for name in HygonBackend().framework_state() if name.startswith("sdpa.")]


@pytest.mark.run
def test_the_record_says_which_ways_attention_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "K100_AI")
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        state = HygonBackend().framework_state()
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    assert (state["device_name"], state["version.hip"]) == ("K100_AI", None)
    assert (state["sdpa.flash"], state["sdpa.math"], state["flash_attn_2_cuda"]) == (False, True, "not found")

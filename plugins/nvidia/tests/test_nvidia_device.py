from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml
import pytest
from nvidia_builders import (
    DRIVER,
    FIRST,
    GIB,
    MIB,
    NAME,
    PATIENCE_SECONDS,
    SECOND,
    TOTAL,
    address,
    in_child,
    machine_at,
    machine_folder,
    nvml_card,
    nvml_environ,
    nvml_text,
    tell_minors,
    transcript,
    uuid,
    write_nvidia_smi,
)

from flagperf.api import PRECISIONS, Device
from flagperf.errors import ToolFailed, Unsupported
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_nvidia import smi
from flagperf_nvidia.device import NvidiaBackend, presence

LOOK = "answer = {'devices': backend.devices(machine), 'versions': backend.versions(machine)}"


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, whatever machine it is on; children have the library that plays NVML."""

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)


def devices_by_nvml(root: Path, text: str, *defines: str, **variables: str) -> list[Device]:
    answer = in_child(LOOK, nvml_environ(root, text, *defines, **variables))
    return msgspec.convert(answer["devices"], list[Device])


def devices_by_tool(root: Path, *places: str) -> list[Device]:
    folder = machine_at(root, places) if places else machine_folder(root)
    return NvidiaBackend().devices(folder.machine({"PATH": str(root / "bin")}))


# --- presence -------------------------------------------------------------------------------------------------------


def test_a_card_on_the_bus_with_its_nodes_is_present(tmp_path: Path) -> None:
    found = presence(machine_folder(tmp_path).machine())
    assert found.state == "present"
    assert "PCI 0000:07:00.0 10de:20b0" in found.evidence and "/dev/nvidia1" in found.evidence


def test_an_empty_machine_is_clean_absence_that_says_what_was_looked_for(tmp_path: Path) -> None:
    found = presence(MachineFolder(tmp_path).machine())
    assert found.state == "absent"
    assert "10de" in found.reason and "/dev/nvidiactl" in found.reason


def test_a_card_on_the_bus_without_its_node_is_partial(tmp_path: Path) -> None:
    found = presence(MachineFolder(tmp_path).pci("0000:07:00.0", "10de", "2330", "0302").machine())
    assert found.state == "partial"
    assert "map it" in found.reason


@pytest.mark.parametrize("node", ["/dev/nvidiactl", "/dev/nvidia0"])
def test_half_of_the_nodes_is_partial_and_shown(tmp_path: Path, node: str) -> None:
    folder = MachineFolder(tmp_path).pci("0000:07:00.0", "10de", "2330", "0302").node(node)
    found = presence(folder.machine())
    assert found.state == "partial"
    assert node in found.evidence


@pytest.mark.parametrize("class_id", ["0680", "0403", "0604"])
def test_switches_bridges_and_audio_are_no_cards(tmp_path: Path, class_id: str) -> None:
    found = presence(MachineFolder(tmp_path).pci("0000:07:00.1", "10de", "22a3", class_id).machine())
    assert found.state == "absent"


def test_nodes_count_without_the_bus_only_together_with_the_driver(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).node("/dev/nvidiactl", "/dev/nvidia0")
    assert presence(folder.machine()).state == "partial"
    assert presence(folder.module("nvidia").machine()).state == "present"


def test_a_driver_without_a_card_is_partial(tmp_path: Path) -> None:
    assert presence(MachineFolder(tmp_path).module("nvidia").machine()).state == "partial"


def test_library_and_tool_alone_are_no_card(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "root").file("/usr/lib64/libnvidia-ml.so.1")
    write_nvidia_smi(tmp_path / "bin")
    found = presence(folder.machine({"PATH": str(tmp_path / "bin")}))
    assert found.state == "absent"
    assert "libnvidia-ml.so.1" in found.reason and "nvidia-smi" in found.reason


def test_another_vendors_card_whose_library_answers_nvml_calls_is_not_present(tmp_path: Path) -> None:
    MachineFolder(tmp_path).pci("0000:07:00.0", "1d22", "3684", "1200").node("/dev/xpuctrl", "/dev/xpu0")
    environ = nvml_environ(tmp_path, nvml_text([nvml_card(0)]))
    answer = in_child(
        "answer = {'presence': backend.presence(machine), 'probe': probe.available(machine)}",
        environ,
    )
    assert answer["presence"]["state"] == "absent"
    assert not answer["probe"]["available"] and "no NVIDIA card" in answer["probe"]["reason"]


def wsl_machine(root: Path) -> MachineFolder:
    return MachineFolder(root).node("/dev/dxg").file("/usr/lib/wsl/lib/libnvidia-ml.so.1")


def test_a_card_of_windows_is_present_in_wsl_and_its_node_alone_is_not(tmp_path: Path) -> None:
    assert presence(MachineFolder(tmp_path / "other vendor").node("/dev/dxg").machine()).state == "absent"
    no_node = MachineFolder(tmp_path / "no node").file("/usr/lib/wsl/lib/libnvidia-ml.so.1")
    assert presence(no_node.machine()).state == "absent"
    found = presence(wsl_machine(tmp_path / "wsl").machine())
    assert (found.state, found.evidence) == ("present", ("/dev/dxg", "/usr/lib/wsl/lib/libnvidia-ml.so.1"))


def test_cards_in_wsl_are_listed_and_sampled(tmp_path: Path) -> None:
    wsl_machine(tmp_path)
    code = (
        "devices = backend.devices(machine)\n"
        "answer = [probe.available(machine).available, devices[0].id, devices[0].problem, "
        "probe.sample(devices, None)[0].used_bytes]\nprobe.close()"
    )
    assert in_child(code, nvml_environ(tmp_path, nvml_text([nvml_card(0)]))) == [True, uuid(0), "", GIB]


# --- cards by NVML --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_cards", [1, 8, 16])
def test_nvml_gives_every_card_its_identity(tmp_path: Path, num_cards: int) -> None:
    machine_folder(tmp_path, num_cards)
    devices = devices_by_nvml(tmp_path, nvml_text([nvml_card(index) for index in range(num_cards)]))
    assert [device.id for device in devices] == [uuid(index) for index in range(num_cards)]
    assert [device.pci_address for device in devices] == [address(index) for index in range(num_cards)]
    assert [device.physical_index for device in devices] == list(range(num_cards))
    assert {(device.model, device.short_name, device.memory_bytes) for device in devices} == {
        ("A100-SXM4-40GB", "A100", TOTAL)
    }


def test_versions_of_driver_and_cuda_are_fields_of_their_own(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    versions = in_child(LOOK, nvml_environ(tmp_path, nvml_text([nvml_card(0)])))["versions"]
    assert versions["driver"] == DRIVER and versions["cuda_driver"] == "12.4"
    assert versions["nvml"].startswith("nvidia-ml-py ")


def test_a_lowered_power_limit_stands_beside_the_default(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    (device,) = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, limit=250000)]))
    assert device.properties["power_limit_watts"] == "250"
    assert device.properties["power_default_limit_watts"] == "400"


def test_a_limit_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    (device,) = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, limit=None, default_limit=None)]))
    assert not [name for name in device.properties if name.startswith("power")]


def test_names_given_as_bytes_are_read_like_names(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    code = (
        "import pynvml\n"
        "for name in ('nvmlDeviceGetName', 'nvmlDeviceGetUUID', 'nvmlSystemGetDriverVersion'):\n"
        "    old = getattr(pynvml, name)\n"
        "    setattr(pynvml, name, lambda *given, old=old: old(*given).encode())\n" + LOOK
    )
    answer = in_child(code, nvml_environ(tmp_path, nvml_text([nvml_card(0)])))
    assert (answer["devices"][0]["id"], answer["versions"]["driver"]) == (uuid(0), DRIVER)


def test_an_unknown_card_keeps_its_own_name_and_has_no_peaks(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    (device,) = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, name="NVIDIA GH200 480GB")]))
    assert (device.model, device.short_name) == ("NVIDIA GH200 480GB", "NVIDIA GH200 480GB")
    assert not [peak for peak in NvidiaBackend().peaks() if peak.model == device.model]


def test_a_visibility_variable_narrows_and_reorders_by_index_and_uuid(tmp_path: Path) -> None:
    machine_folder(tmp_path, 4)
    text = nvml_text([nvml_card(index) for index in range(4)])
    by_both = devices_by_nvml(tmp_path, text, CUDA_VISIBLE_DEVICES=f"2,{uuid(0)[:12]},7,1")
    assert [device.physical_index for device in by_both] == [2, 0]


# --- cards that disappoint ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3"])
def test_a_card_that_fell_off_the_bus_is_listed_with_its_place_and_problem(tmp_path: Path, call: str) -> None:
    machine_folder(tmp_path, 3)
    cards = [nvml_card(0), nvml_card(1, errors=f"{call}:15"), nvml_card(2)]
    first, lost, last = devices_by_nvml(tmp_path, nvml_text(cards))
    assert (lost.id, lost.physical_index, lost.memory_bytes) == (address(1), 1, None)
    assert "NVML 15" in lost.problem
    assert not first.problem and not last.problem


def test_a_lost_card_without_a_place_is_named_by_its_index(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    cards = [nvml_card(0), nvml_card(1, errors="nvmlDeviceGetHandleByIndex_v2:15")]
    _, lost = devices_by_nvml(tmp_path, nvml_text(cards))
    assert (lost.id, lost.pci_address) == ("nvml-index-1", "")


def test_a_card_that_loses_its_memory_keeps_its_identity(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    errors = "nvmlDeviceGetMemoryInfo:15,nvmlDeviceGetMemoryInfo_v2:15"
    (device,) = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, errors=errors)]))
    assert (device.id, device.memory_bytes) == (uuid(0), None)
    assert "NVML 15" in device.problem


@pytest.mark.parametrize("code", [4, 17])
def test_cards_that_are_not_mapped_for_us_are_left_out(tmp_path: Path, code: int) -> None:
    machine_folder(tmp_path)
    cards = [nvml_card(0, errors=f"nvmlDeviceGetHandleByIndex_v2:{code}"), nvml_card(1)]
    assert [device.id for device in devices_by_nvml(tmp_path, nvml_text(cards))] == [uuid(1)]


def bus_problem(devices: Sequence[Device]) -> dict[str, str]:
    return {device.id: device.problem for device in devices if "on the bus" in device.problem}


def test_a_card_that_nvml_does_not_count_is_found_on_the_bus(tmp_path: Path) -> None:
    machine_folder(tmp_path, 8)
    devices = devices_by_nvml(tmp_path, nvml_text([nvml_card(index) for index in range(8) if index != 3]))
    assert len(devices) == 8
    assert list(bus_problem(devices)) == [address(3)] and "NVML does not list it" in devices[-1].problem


def test_all_cards_lost_is_not_no_cards(tmp_path: Path) -> None:
    machine_folder(tmp_path, 2)
    assert list(bus_problem(devices_by_nvml(tmp_path, nvml_text([])))) == [address(0), address(1)]


def test_with_one_lost_by_its_handle_and_one_not_counted_both_are_named(tmp_path: Path) -> None:
    machine_folder(tmp_path, 3)
    cards = [nvml_card(0), nvml_card(1, errors="nvmlDeviceGetHandleByIndex_v2:15")]
    devices = devices_by_nvml(tmp_path, nvml_text(cards))
    assert [device.id for device in devices] == [uuid(0), address(1), address(2)]
    assert all("NVML 15" in device.problem for device in devices[1:])


def test_cards_of_the_host_that_are_not_mapped_are_not_lost(tmp_path: Path) -> None:
    folder = machine_folder(tmp_path, 8)
    for index in range(2, 8):
        (tmp_path / f"dev/nvidia{index}").unlink()
    text = nvml_text([nvml_card(index) for index in range(2)])
    assert bus_problem(devices_by_nvml(tmp_path, text)) == {}
    tell_minors(folder, {address(index): index for index in range(8)})
    assert bus_problem(devices_by_nvml(tmp_path, text)) == {}
    assert list(bus_problem(devices_by_nvml(tmp_path, nvml_text([nvml_card(0)])))) == [address(1)]


def test_where_nothing_says_whose_the_nodes_are_lost_cards_are_counted(tmp_path: Path) -> None:
    folder = machine_folder(tmp_path, 8)
    for index in (0, 1, 3, 4, 6):
        (tmp_path / f"dev/nvidia{index}").unlink()
    whole, *lost = devices_by_nvml(tmp_path, nvml_text([nvml_card(5)]))
    assert (whole.problem, [device.id for device in lost]) == ("", ["unlisted-1", "unlisted-2"])
    assert "NVML lists 1 of the 3 cards whose nodes are here (/dev/nvidia2, /dev/nvidia5, " in lost[0].problem
    refused = nvml_card(2, errors="nvmlDeviceGetHandleByIndex_v2:4")
    assert len(devices_by_nvml(tmp_path, nvml_text([nvml_card(5), refused]))) == 2
    listed = [nvml_card(5), nvml_card(2, errors="nvmlDeviceGetHandleByIndex_v2:15"), nvml_card(7)]
    assert len(devices_by_nvml(tmp_path, nvml_text(listed))) == 3
    tell_minors(folder, {address(5): 5})
    assert [device.id for device in devices_by_nvml(tmp_path, nvml_text([nvml_card(5)]))] == [uuid(5)]


def test_a_card_that_another_driver_holds_or_that_is_excluded_is_not_lost(tmp_path: Path) -> None:
    folder = tell_minors(machine_folder(tmp_path, 2), {address(0): 0})
    assert bus_problem(devices_by_nvml(tmp_path, nvml_text([nvml_card(0)]))) == {}
    tell_minors(folder, {address(1): 1}, excluded="Yes")
    assert bus_problem(devices_by_nvml(tmp_path, nvml_text([nvml_card(0)]))) == {}
    tell_minors(folder, {address(1): 1})
    assert list(bus_problem(devices_by_nvml(tmp_path, nvml_text([nvml_card(0)])))) == [address(1)]


def test_cards_of_another_job_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group refuses their nodes, and the tool does not list them."""
    write_nvidia_smi(tmp_path / "bin", 1)
    assert list(bus_problem(devices_by_tool(tmp_path))) == [address(1)]
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "nvidia1" and bool(mode))
    assert bus_problem(devices_by_tool(tmp_path)) == {}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"errors": "nvmlDeviceGetMemoryInfo:16,nvmlDeviceGetMemoryInfo_v2:16"}, "NVML 16"),
        ({"errors": "nvmlDeviceGetTemperature:16"}, "NVML 16"),
        ({"errors": "nvmlDeviceGetUtilizationRates:15"}, "NVML 15"),
        ({"errors": "nvmlDeviceGetMigMode:16"}, "NVML 16"),
        ({"errors": "nvmlDeviceGetRemappedRows:16"}, "NVML 16"),
        ({"rows_uncorrectable": 1, "rows_pending": 1}, "1 row waits to be remapped"),
        ({"rows_uncorrectable": 3, "rows_pending": 1}, "rows wait (of 3 that went bad) to be remapped"),
        ({"rows_uncorrectable": 3, "rows_failed": 1}, "needs service"),
        ({"rows_uncorrectable": None, "pages_pending": 1}, "pages wait to be retired"),
    ],
)
def test_a_card_that_needs_a_reset_keeps_its_identity_and_says_so(
    tmp_path: Path, changed: dict[str, object], words: str
) -> None:
    machine_folder(tmp_path)
    sick, healthy = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, **changed), nvml_card(1)]))
    assert (sick.id, sick.model) == (uuid(0), "A100-SXM4-40GB") and words in sick.problem
    assert healthy.problem == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"rows_uncorrectable": 3},
        {"rows_pending": 1},
        {"rows_uncorrectable": None, "pages_pending": None},
        {"utilization": None, "celsius": None, "milliwatts": None},
    ],
)
def test_what_a_healthy_card_says_or_cannot_say_is_no_problem(tmp_path: Path, changed: dict[str, object]) -> None:
    machine_folder(tmp_path, 1)
    (card,) = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, **changed)]))
    assert card.problem == "" and card.memory_bytes == TOTAL


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"errors": "nvmlDeviceGetMemoryInfo:3,nvmlDeviceGetMemoryInfo_v2:3"}, "NVML 3"),
        ({"total": 0, "used": 0, "reserved": 0}, "a total of 0 bytes"),
    ],
)
def test_a_card_whose_memory_is_the_hosts_can_be_used_and_its_memory_is_unknown(
    tmp_path: Path, changed: dict[str, object], words: str
) -> None:
    machine_folder(tmp_path, 1)
    text = nvml_text([nvml_card(0, name="NVIDIA GB10", **changed)])
    (card,) = devices_by_nvml(tmp_path, text)
    assert (card.model, card.memory_bytes, card.problem) == ("NVIDIA GB10", None, "")
    assert words in card.properties["memory_missing"]
    code = "answer = probe.sample(backend.devices(machine), None)[0]\nprobe.close()"
    reading = in_child(code, nvml_environ(tmp_path, text))
    assert not {"used_bytes", "total_bytes"} & set(reading) and reading["power_watts"] == 100.5
    assert words in reading["missing"]["used_bytes"] and words in reading["missing"]["total_bytes"]


def failure(root: Path, text: str) -> str:
    """Of discovery, where there is no tool either."""
    code = (
        "from flagperf.errors import ToolFailed\n"
        "try:\n    answer = backend.devices(machine)\nexcept ToolFailed as error:\n    answer = str(error)"
    )
    environ = {**nvml_environ(root, text), "PATH": os.devnull}
    return str(in_child(code, environ))


def test_a_machine_whose_cards_are_all_refused_says_so(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    cards = [nvml_card(index, errors="nvmlDeviceGetHandleByIndex_v2:4") for index in range(2)]
    assert "counts 2 cards and shows none" in failure(tmp_path, nvml_text(cards))


@pytest.mark.parametrize("code", [9, 18, 999])
def test_a_driver_that_does_not_answer_is_named_with_its_code(tmp_path: Path, code: int) -> None:
    machine_folder(tmp_path)
    said = failure(tmp_path, nvml_text([nvml_card(0)], errors=f"nvmlInitWithFlags:{code}"))
    assert f"NVML {code}" in said and "nvidia-smi" in said


def test_a_library_that_speaks_for_another_vendors_card_is_refused(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    assert "PCI vendor 1d22" in failure(tmp_path, nvml_text([nvml_card(0, pci_id="0x36841d22")]))


# --- MIG ------------------------------------------------------------------------------------------------------------

SLICES: Sequence[Mapping[str, object]] = [
    {"card": 0, "uuid": "MIG-aaaaaaaa-0000-5000-8000-000000000001", "name": f"{NAME} MIG 3g.20gb", "total": 20 * GIB},
    {"card": 0, "uuid": "-"},
    {"card": 0, "uuid": "MIG-aaaaaaaa-0000-5000-8000-000000000002", "name": f"{NAME} MIG 1g.5gb", "total": 4864 * MIB},
]


def test_a_card_in_mig_mode_gives_its_slices_with_their_own_memory(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    large, small, whole = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, mig=1), nvml_card(1)], SLICES))
    assert [large.slice, small.slice, whole.slice] == ["MIG 3g.20gb", "MIG 1g.5gb", ""]
    assert [large.memory_bytes, small.memory_bytes, whole.memory_bytes] == [20 * GIB, 4864 * MIB, TOTAL]
    assert small.id == SLICES[2]["uuid"]
    assert (small.pci_address, small.physical_index, small.properties["card"]) == (address(0), 0, uuid(0))
    assert small.model == f"{NAME} MIG 1g.5gb"


@pytest.mark.parametrize("name", ["MIG 1c.3g.20gb", "MIG 3g.20gb"])
def test_compute_instances_of_one_gpu_instance_say_that_they_share_its_memory(tmp_path: Path, name: str) -> None:
    machine_folder(tmp_path, 1)
    parts = [
        {**SLICES[0], "name": f"{NAME} {name}", "instance": 1},
        {**SLICES[2], "name": f"{NAME} {name}", "instance": 1},
    ]
    alone = {**SLICES[2], "uuid": "MIG-aaaaaaaa-0000-5000-8000-000000000003", "instance": 2}
    first, second, third = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, mig=1)], [*parts, alone]))
    assert first.slice == second.slice and first.slice.startswith(f"{name}, memory shared with the other compute")
    assert third.slice == "MIG 1g.5gb"


def test_slices_count_as_their_card_among_the_nodes(tmp_path: Path) -> None:
    machine_folder(tmp_path, 3)
    (tmp_path / "dev/nvidia2").unlink()
    large, small, last = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, mig=1), nvml_card(1)], SLICES))
    assert (large.pci_address, small.pci_address, last.id) == (address(0), address(0), uuid(1))
    _, _, last = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, mig=1)], SLICES))
    assert last.id == "unlisted-1"


def test_slices_have_the_problem_of_their_card(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    card = nvml_card(0, mig=1, errors="nvmlDeviceGetTemperature:16")
    assert all("NVML 16" in part.problem for part in devices_by_nvml(tmp_path, nvml_text([card], SLICES)))


def test_mig_mode_without_slices_is_a_problem_of_the_card(tmp_path: Path) -> None:
    machine_folder(tmp_path, 1)
    (card,) = devices_by_nvml(tmp_path, nvml_text([nvml_card(0, mig=1)]))
    assert card.id == uuid(0) and "no slices" in card.problem


# --- cards by nvidia-smi --------------------------------------------------------------------------------------------


def test_nvidia_smi_stands_in_where_there_is_no_library(tmp_path: Path) -> None:
    write_nvidia_smi(tmp_path / "bin")
    devices = devices_by_tool(tmp_path)
    assert [(device.id, device.pci_address, device.model) for device in devices] == [
        (uuid(index), address(index), "A100-SXM4-40GB") for index in range(2)
    ]
    assert {device.memory_bytes for device in devices} == {TOTAL}
    assert devices[0].properties == {
        "source": "nvidia-smi",
        "power_limit_watts": "400.00",
        "power_default_limit_watts": "400.00",
    }


def write_answers(folder: Path, query_gpu: str, listed: str) -> None:
    write_tool(folder, "nvidia-smi", [Answer(smi.QUERY_GPU, query_gpu), Answer(smi.LIST, listed)])


def test_nvidia_smi_lists_slices_whose_memory_is_not_known(tmp_path: Path) -> None:
    listed = "".join(transcript("list_mig").splitlines(keepends=True)[:3])
    write_answers(tmp_path / "bin", transcript("query_gpu_mig"), listed)
    devices = devices_by_tool(tmp_path, "0000:3b:00.0")
    assert [device.slice for device in devices] == ["MIG 3g.20gb", "MIG 1g.5gb"]
    assert all(device.memory_bytes is None and device.id.startswith("MIG-") for device in devices)
    assert {device.properties["memory_missing"] for device in devices} == {smi.NOT_OF_A_SLICE}


def test_nvidia_smi_tells_of_a_lost_card(tmp_path: Path) -> None:
    write_answers(tmp_path / "bin", transcript("query_gpu_lost"), transcript("list").splitlines()[0] + "\n")
    lost, whole = devices_by_tool(tmp_path, "0000:3b:00.0", "0000:af:00.0")
    assert lost.id == "0000:af:00.0" and "Unknown Error" in lost.problem
    assert not whole.problem


LOST = "Unable to determine the device handle for GPU"


@pytest.mark.parametrize(
    ("in_csv", "in_list"),
    [
        ("", ""),
        ("1: 0000:AF:00.0: Unknown Error\n", ""),
        ("0000:AF:00.0: Unknown Error\n", "0000:AF:00.0: Unknown Error\n"),
        (" 0000:AF:00.0: GPU is lost.  Reboot the system to recover this GPU\n", "1: Unknown Error\n"),
        ("1: Unknown Error\n", "1: Unknown Error\n"),
        ("", "1: Unknown Error\n"),
    ],
)
@pytest.mark.parametrize("where", ["stdout", "stderr", "stderr, exit 15"])
def test_a_lost_card_is_seen_wherever_the_tool_speaks_of_it(
    tmp_path: Path, in_csv: str, in_list: str, where: str
) -> None:
    """Also where it does not: then by the bus."""
    table = "".join(transcript("query_gpu").splitlines(keepends=True)[:2])
    listed = transcript("list").splitlines(keepends=True)[0]
    said = [(smi.QUERY_GPU, table, in_csv), (smi.LIST, listed, in_list)]
    answers = []
    for arguments, stdout, words in said:
        lost = f"{LOST}{words}" if words else ""
        code = 15 if words and "15" in where else 0
        both = (lost + stdout, "") if where == "stdout" else (stdout, lost)
        answers.append(Answer(arguments, *both, returncode=code))
    write_tool(tmp_path / "bin", "nvidia-smi", answers)
    devices = devices_by_tool(tmp_path, "0000:3b:00.0", "0000:af:00.0")
    assert sorted((bool(device.problem), device.pci_address) for device in devices) == [
        (False, "0000:3b:00.0"),
        (True, "0000:af:00.0"),
    ]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_machine_whose_only_card_is_lost_lists_it(tmp_path: Path, stream: str) -> None:
    lost, none = f"{LOST}0: 0000:3B:00.0: Unknown Error\n", "No devices were found\n"
    both = (lost + none, "") if stream == "stdout" else (none, lost)
    write_tool(tmp_path / "bin", "nvidia-smi", [Answer(asked, *both) for asked in (smi.QUERY_GPU, smi.LIST)])
    (device,) = devices_by_tool(tmp_path, "0000:3b:00.0")
    assert device.pci_address == "0000:3b:00.0" and "Unknown Error" in device.problem


@pytest.mark.parametrize("cell", ["[GPU requires reset]", "[GPU is lost]"])
def test_a_cell_that_says_so_makes_the_card_one_that_cannot_be_used(tmp_path: Path, cell: str) -> None:
    write_answers(tmp_path / "bin", transcript("query_gpu").replace("13213 MiB", cell), transcript("list"))
    sick, healthy = devices_by_tool(tmp_path, "0000:3b:00.0", "0000:af:00.0")
    assert sick.problem == cell.strip("[]") and healthy.problem == ""


def test_memory_that_the_tool_does_not_know_is_unknown_and_the_card_can_be_used(tmp_path: Path) -> None:
    table = (
        transcript("query_gpu")
        .replace("40960 MiB, 13213 MiB", "[N/A], [N/A]")
        .replace("40960 MiB, 4 MiB", "0 MiB, 0 MiB")
    )
    write_answers(tmp_path / "bin", table, transcript("list"))
    devices = devices_by_tool(tmp_path, "0000:3b:00.0", "0000:af:00.0")
    assert [(device.memory_bytes, device.problem) for device in devices] == [(None, ""), (None, "")]
    assert [device.properties["memory_missing"] for device in devices] == [
        "the tool says '[N/A]'",
        "the tool says a total of 0",
    ]


@pytest.mark.parametrize(
    ("question", "header", "cells"),
    [
        (smi.QUERY_ROWS, ", ".join(smi.ROW_FIELDS), "2, 1, 0"),
        (smi.QUERY_ROWS, ", ".join(smi.ROW_FIELDS), "2, Yes, No"),
        (smi.QUERY_PAGES, ", ".join(smi.PAGE_FIELDS), "Yes"),
    ],
)
def test_the_tool_tells_of_memory_that_waits_for_a_reset(
    tmp_path: Path, question: tuple[str, ...], header: str, cells: str
) -> None:
    fine = "0, 0, 0" if "," in cells else "No"
    health = f"{header}\n{FIRST}, {cells}\n{SECOND}, {fine}\n"
    answers = [
        Answer(smi.QUERY_GPU, transcript("query_gpu")),
        Answer(smi.LIST, transcript("list")),
        Answer(question, health),
    ]
    write_tool(tmp_path / "bin", "nvidia-smi", answers)
    sick, healthy = devices_by_tool(tmp_path, "0000:3b:00.0", "0000:af:00.0")
    assert "uncorrectable memory errors" in sick.problem and healthy.problem == ""


def test_without_library_and_tool_both_are_named(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"NVML.*nvidia-smi is neither on PATH"):
        devices_by_tool(tmp_path)


def test_the_driver_version_comes_from_the_kernel_where_there_is_no_library(tmp_path: Path) -> None:
    assert NvidiaBackend().versions(machine_folder(tmp_path).machine()) == {"driver": DRIVER}
    assert NvidiaBackend().versions(MachineFolder(tmp_path / "empty").machine()) == {}


def test_the_open_kernel_module_has_its_version_behind_the_architecture(tmp_path: Path) -> None:
    said = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@host)\n"
    machine = MachineFolder(tmp_path).file("/proc/driver/nvidia/version", said).machine()
    assert NvidiaBackend().versions(machine) == {"driver": "570.86.15"}


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A100X", None),
        ("NVIDIA A800-SXM4-80GB", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
    ],
)
def test_a_name_means_one_model_or_none(name: str, model: str | None) -> None:
    found = find_model(NvidiaBackend().models(), [name])
    assert (found.name if found else None) == model


# --- the worker -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ({"cuda": "12.4", "hip": None}, ""),
        ({"cuda": None, "hip": None}, "without CUDA"),
        ({"cuda": None, "hip": "6.3.26113"}, "HIP 6.3.26113"),
        ({"cuda": "11.6", "hip": None, "maca": "3.5"}, "MACA"),
    ],
)
def test_builds_of_torch_for_other_cards_are_refused(version: dict[str, Any], words: str) -> None:
    said = NvidiaBackend().wrong_build(SimpleNamespace(version=SimpleNamespace(**version)))
    assert words in said and bool(said) == bool(words)


def test_a_torch_that_is_patched_for_other_cards_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch_xmlir.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    torch = SimpleNamespace(version=SimpleNamespace(cuda="12.9", hip=None))
    assert "torch_xmlir" in NvidiaBackend().wrong_build(torch)
    monkeypatch.setenv("DISABLE_XPYTORCH", "1")
    assert NvidiaBackend().wrong_build(torch) == ""


class OlderCard(NvidiaBackend):
    _module = SimpleNamespace(get_device_capability=lambda: (7, 5), get_device_name=lambda: "Tesla T4")  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["tf32", "bf16", "amp-bf16"])
def test_cards_before_ampere_refuse_what_they_cannot_compute(name: str) -> None:
    with pytest.raises(Unsupported, match=f"Tesla T4.*{name}"):
        OlderCard().set_precision(PRECISIONS[name])


@pytest.mark.parametrize("name", ["fp32", "bf16", "amp-fp16", "tf32"])
def test_both_switches_of_tf32_follow_the_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    backend = NvidiaBackend()
    monkeypatch.setattr(backend, "_module", SimpleNamespace(get_device_capability=lambda: (8, 0)))
    try:
        backend.set_precision(PRECISIONS[name])
        switches = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    finally:
        backend.set_precision(PRECISIONS["fp32"])
    assert switches == (name == "tf32", name == "tf32")
    assert not torch.backends.cuda.matmul.allow_tf32


# --- with the whole of flagperf --------------------------------------------------------------------------------------


def test_the_published_values_are_tuning_data_for_each_shape() -> None:
    from flagperf.plan.settings import find_tuning

    folder = NvidiaBackend().tuning_folder()
    expected = {
        (1, 1): {"batch_size": 96, "learning_rate": 1.5e-4},
        (1, 8): {"batch_size": 96},
        (2, 8): {"batch_size": 96},
    }
    for (nodes, devices), values in expected.items():
        tuning = find_tuning(folder, "distilbert", "A100-SXM4-40GB", nodes, devices, "standard")
        assert tuning is not None and tuning.values == {"training": values} and tuning.source
    assert find_tuning(folder, "distilbert", "A100-SXM4-80GB", 1, 8, "standard") is None


def flagperf(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flagperf", *arguments],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_the_command_line_lists_the_cards_of_a_machine(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    done = flagperf(nvml_environ(tmp_path, nvml_text([nvml_card(0), nvml_card(1)])), "devices", "--json")
    assert done.returncode == 0, done.stderr
    assert uuid(1) in json.dumps(json.loads(done.stdout))


def test_devices_and_plan_show_the_problem_of_a_card(tmp_path: Path) -> None:
    machine_folder(tmp_path)
    sick = nvml_card(1, errors="nvmlDeviceGetMemoryInfo_v2:16,nvmlDeviceGetMemoryInfo:16")
    environ = nvml_environ(tmp_path, nvml_text([nvml_card(0), sick]))
    words = f"{uuid(1)} cannot be used: nvmlDeviceGetMemoryInfo: "
    assert words in flagperf(environ, "devices").stderr
    plan = ("plan", "distilbert", "--vendor", "nvidia", "--profile", "tiny")
    without, with_it = flagperf(environ, *plan), flagperf(environ, *plan, "--devices", "2")
    assert (without.returncode, with_it.returncode) == (0, 2)
    assert words in without.stdout and words in with_it.stderr

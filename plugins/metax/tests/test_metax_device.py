"""Presence from evidence, identities from mx-smi, versions, and the worker's side."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from metax_builders import (
    ANSWERS,
    FIRST,
    FIRST_UUID,
    GIB,
    MIB,
    SECOND,
    SECOND_UUID,
    SLICE,
    SLICE_UUID,
    SLICED_ANSWERS,
    metax_folder,
    replaced,
    transcript,
    with_tool,
    without,
)

from flagperf.api import Device
from flagperf.errors import BadInput, ToolFailed
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder
from flagperf_metax.device import MetaxBackend

BACKEND = MetaxBackend()


def folder(tmp_path: Path) -> MachineFolder:
    return MachineFolder(tmp_path / "machine")


# --- presence --------------------------------------------------------------------------------------------------------


def test_cards_on_the_bus_with_their_node_are_present(tmp_path: Path) -> None:
    presence = BACKEND.presence(metax_folder(tmp_path).machine())
    assert presence.state == "present"
    assert f"PCI {FIRST} 9999:0a01" in presence.evidence
    assert "/dev/mxcd" in presence.evidence


def test_a_card_on_the_bus_without_its_node_is_partial(tmp_path: Path) -> None:
    presence = BACKEND.presence(folder(tmp_path).pci(FIRST, "9999", "0a01", "0302").machine())
    assert presence.state == "partial"
    assert "node" in presence.reason


def test_a_model_of_unknown_id_counts_when_the_vendors_driver_holds_it(tmp_path: Path) -> None:
    machine = folder(tmp_path).pci(FIRST, "9999", "0b77", "0302", driver="METAX").node("/dev/mxcd")
    assert BACKEND.presence(machine.machine()).state == "present"


def test_an_unknown_id_that_no_driver_of_the_vendor_holds_is_no_card(tmp_path: Path) -> None:
    machine = folder(tmp_path).pci(FIRST, "9999", "0b77", "0302", driver="vfio-pci")
    assert BACKEND.presence(machine.machine()).state == "absent"


def test_a_node_counts_together_with_the_kernel_module(tmp_path: Path) -> None:
    machine = folder(tmp_path).node("/dev/mxcd")
    assert BACKEND.presence(machine.machine()).state == "partial"
    assert BACKEND.presence(machine.module("metax").machine()).state == "present"


def test_another_vendors_card_is_absence(tmp_path: Path) -> None:
    machine = folder(tmp_path).pci(FIRST, "10de", "20b0", "0302").node("/dev/nvidiactl", "/dev/dri/card0")
    presence = BACKEND.presence(machine.machine())
    assert presence.state == "absent"
    assert "9999" in presence.reason


def test_the_tool_alone_is_no_card_because_another_company_ships_one_of_its_name(tmp_path: Path) -> None:
    machine = with_tool(folder(tmp_path))
    presence = BACKEND.presence(machine)
    assert presence.state == "absent"
    assert "mx-smi" not in presence.reason


def test_a_library_that_stayed_behind_is_said_but_is_no_card(tmp_path: Path) -> None:
    presence = BACKEND.presence(folder(tmp_path).file("/opt/maca/lib/libmxsml.so").machine())
    assert presence.state == "absent"
    assert "/opt/maca/lib/libmxsml.so" in presence.reason


# --- identities ------------------------------------------------------------------------------------------------------


def devices(tmp_path: Path, answers: tuple[Answer, ...] = ANSWERS, **environ: str) -> list[Device]:
    return BACKEND.devices(with_tool(metax_folder(tmp_path), answers, **environ))


def test_cards_have_uuid_address_model_and_capacity(tmp_path: Path) -> None:
    first, second = devices(tmp_path)
    assert (first.id, first.uuid, first.pci_address) == (FIRST_UUID, FIRST_UUID, FIRST)
    assert (second.id, second.physical_index, second.pci_address) == (SECOND_UUID, 1, SECOND)
    assert {device.model for device in (first, second)} == {"C500"}
    assert {device.memory_bytes for device in (first, second)} == {64 * GIB}
    assert first.properties["power_limit_watts"] == "350.000"


def test_a_model_is_what_the_tool_calls_it_whatever_its_pci_id(tmp_path: Path) -> None:
    listed = Answer(("-L",), transcript("list_one_mapped"))
    assert {device.model for device in devices(tmp_path, replaced(ANSWERS, listed))} == {"C550"}


def test_visibility_narrows_and_reorders_when_both_variables_agree(tmp_path: Path) -> None:
    both = {"CUDA_VISIBLE_DEVICES": "1,0", "MACA_VISIBLE_DEVICES": "1,0"}
    assert [device.physical_index for device in devices(tmp_path, **both)] == [1, 0]


def test_visibility_variables_that_disagree_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="disagree"):
        devices(tmp_path, CUDA_VISIBLE_DEVICES="0", MACA_VISIBLE_DEVICES="1")


def test_a_card_that_is_not_mapped_is_there_with_its_problem(tmp_path: Path) -> None:
    listed = Answer(("-L",), transcript("list_one_mapped"))
    usable, other = devices(tmp_path, replaced(ANSWERS, listed))
    assert (usable.id, usable.physical_index, usable.problem) == (SECOND_UUID, 0, "")
    assert (other.id, other.problem) == (FIRST, "MetaX Sysfs File Unaccessible")


@pytest.mark.parametrize("form", ["list", "table"])
def test_a_card_that_the_tool_leaves_out_is_found_on_the_bus_if_its_node_is_here(tmp_path: Path, form: str) -> None:
    listed = Answer(("-L",), transcript("list").partition("GPU#1")[0])
    answers = replaced(ANSWERS, listed) if form == "list" else (Answer((), transcript("table_c_sgpu")),)
    folder = metax_folder(tmp_path)
    machine = with_tool(folder, answers)
    assert [device.pci_address for device in BACKEND.devices(machine)] == [FIRST]
    folder.file(f"/sys/bus/pci/devices/{SECOND}/drm/renderD129/dev", "226:129\n")
    assert [device.pci_address for device in BACKEND.devices(machine)] == [FIRST]
    folder.node("/dev/dri/renderD129")
    whole, lost = BACKEND.devices(machine)
    assert (whole.problem, lost.id, lost.model, lost.physical_index) == ("", SECOND, "MetaX card", -1)
    assert "mx-smi does not list it" in lost.problem


@pytest.mark.parametrize("answers", [ANSWERS, replaced(ANSWERS, Answer(("-L",), transcript("list_one_mapped")))])
def test_a_listed_card_with_its_node_is_not_lost(tmp_path: Path, answers: tuple[Answer, ...]) -> None:
    folder = metax_folder(tmp_path).node("/dev/dri/renderD128", "/dev/dri/renderD129")
    for number, address in ((128, FIRST), (129, SECOND)):
        folder.file(f"/sys/bus/pci/devices/{address}/drm/renderD{number}/dev")
    devices = BACKEND.devices(with_tool(folder, answers))
    assert sorted(device.pci_address for device in devices) == [FIRST, SECOND]
    assert not any("does not list it" in device.problem for device in devices)


def test_a_slice_is_the_device_in_place_of_its_card_and_has_its_own_memory(tmp_path: Path) -> None:
    part, other = devices(tmp_path, SLICED_ANSWERS)
    assert (part.id, part.pci_address, part.memory_bytes) == (SLICE_UUID, FIRST, 32000 * MIB)
    assert part.slice == "sGPU 2: 50% compute, 31.250 GiB"
    assert (part.model, part.short_name) == ("C500", f"C500 ({part.slice})")
    assert part.properties["sgpu"] == SLICE
    assert other.problem


def test_a_release_without_a_list_is_read_through_its_table(tmp_path: Path) -> None:
    first, second = devices(tmp_path, (Answer((), transcript("table_a0")),))
    assert (first.id, first.uuid, second.id) == (FIRST, "", SECOND)
    assert (first.model, first.memory_bytes) == ("C500", 64 * GIB)


def test_a_slice_of_which_only_the_table_tells_has_a_name_of_its_own(tmp_path: Path) -> None:
    (part,) = devices(tmp_path, (Answer((), transcript("table_c_sgpu")),))
    assert (part.id, part.uuid, part.memory_bytes) == (SLICE, "", 32000 * MIB)


def test_a_capacity_that_cannot_be_read_is_unknown_and_the_card_stays(tmp_path: Path) -> None:
    first, _ = devices(tmp_path, without(ANSWERS, "--show-memory"))
    assert (first.id, first.memory_bytes) == (FIRST_UUID, None)


def test_a_tool_that_lists_nothing_readable_is_an_error_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="Permission denied"):
        devices(tmp_path, (Answer(("*",), "", "Permission denied\n", returncode=1),))


def test_cards_without_the_tool_are_an_error_that_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="/opt/mxdriver/bin"):
        BACKEND.devices(metax_folder(tmp_path).machine())


def test_the_tool_is_found_in_the_drivers_folder(tmp_path: Path) -> None:
    machine = metax_folder(tmp_path)
    with_tool(machine)
    (machine.root / "opt" / "mxdriver").mkdir(parents=True)
    (machine.root / "bin").rename(machine.root / "opt" / "mxdriver" / "bin")
    assert len(BACKEND.devices(machine.machine({"PATH": os.environ["PATH"]}))) == 2


# --- versions --------------------------------------------------------------------------------------------------------


def test_driver_and_runtime_versions_are_separate(tmp_path: Path) -> None:
    versions = BACKEND.versions(with_tool(metax_folder(tmp_path)))
    assert versions == {"driver": "3.1.4", "maca": "3.2.1.7", "mx_smi": "2.2.12", "bios": "1.27.3.0"}


def test_versions_come_from_the_log_where_json_cannot_be_read(tmp_path: Path) -> None:
    versions = BACKEND.versions(with_tool(metax_folder(tmp_path), without(ANSWERS, "-j")))
    assert (versions["driver"], versions["maca"]) == ("3.1.4", "3.2.1.7")


def test_versions_of_an_old_release_come_from_its_table(tmp_path: Path) -> None:
    versions = BACKEND.versions(with_tool(metax_folder(tmp_path), (Answer((), transcript("table_a0")),)))
    assert versions == {"driver": "2.1.3", "maca": "2.0", "mx_smi": "2.0.9", "bios": "1.0.99.0"}


def test_a_version_that_the_tool_does_not_know_is_left_out_or_read_from_the_toolkit(tmp_path: Path) -> None:
    unknown = Answer(("-j",), transcript("json").replace("3.2.1.7", "unknown"))
    machine = metax_folder(tmp_path)
    assert "maca" not in BACKEND.versions(with_tool(machine, replaced(ANSWERS, unknown)))
    machine.file("/opt/maca/Version.txt", "Version:2.18.0.8\n")
    assert BACKEND.versions(with_tool(machine, replaced(ANSWERS, unknown)))["maca"] == "2.18.0.8"


def test_without_an_answer_there_are_no_versions(tmp_path: Path) -> None:
    assert BACKEND.versions(metax_folder(tmp_path).machine()) == {}


# --- the worker's side -----------------------------------------------------------------------------------------------


def test_a_torch_of_another_vendor_is_told_by_its_missing_maca_version() -> None:
    assert BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(maca="3.5.3.9", cuda="11.6"))) == ""
    assert "maca" in BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(cuda="12.6", hip=None)))
    assert "maca" in BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(cuda="12.6", maca=None)))


# --- models ----------------------------------------------------------------------------------------------------------


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

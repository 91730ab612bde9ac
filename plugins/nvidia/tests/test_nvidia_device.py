"""Which cards are here, what they are called, and the worker's side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pynvml
import pytest
from nvidia_builders import (
    DRIVER,
    GIB,
    PATIENCE_SECONDS,
    TOTAL,
    address,
    folder_with_cards,
    in_child,
    in_child_each,
    machine_at,
    nvml_card,
    nvml_environ,
    nvml_text,
    tell_minors,
    uuid,
    write_nvidia_smi,
)
from nvidia_outputs import A100, FIRST, LIST, LIST_MIG, MIB, QUERY, SECOND, transcript

from flagperf.api import PRECISIONS, Device, Machine
from flagperf.errors import ToolFailed, Unsupported
from flagperf.kit import find_model
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_nvidia import smi
from flagperf_nvidia.device import NvidiaBackend, presence

BACKEND = NvidiaBackend()


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, whatever machine it is on; children have the library that plays NVML."""

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)


# --- presence --------------------------------------------------------------------------------------------------------


def card(here: MachineFolder, *nodes: str, class_id: str = "0302") -> MachineFolder:
    return here.pci("0000:07:00.0", "10de", "2330", class_id).node(*nodes)


BOTH = ("/dev/nvidiactl", "/dev/nvidia0")
WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
PRESENCE: dict[str, tuple[Callable[[MachineFolder], object], str, Sequence[str]]] = {
    "cards with nodes and driver": (
        lambda here: folder_with_cards(here.root), "present", ["PCI 0000:07:00.0 10de:20b0", "/dev/nvidia1"],
    ),
    "nothing": (lambda here: here, "absent", ["10de", "/dev/nvidiactl"]),
    "a card without nodes": (card, "partial", ["map it"]),
    "a card with the control node alone": (lambda here: card(here, BOTH[0]), "partial", [BOTH[0]]),
    "a card with its own node alone": (lambda here: card(here, BOTH[1]), "partial", [BOTH[1]]),
    "a switch": (lambda here: card(here, class_id="0680"), "absent", []),
    "an audio function": (lambda here: card(here, class_id="0403"), "absent", []),
    "a bridge": (lambda here: card(here, class_id="0604"), "absent", []),
    "nodes alone": (lambda here: here.node(*BOTH), "partial", []),
    "nodes and module": (lambda here: here.node(*BOTH).module("nvidia"), "present", []),
    "a module alone": (lambda here: here.module("nvidia"), "partial", []),
    "library and tool alone": (
        lambda here: write_nvidia_smi(here.file("/usr/lib64/libnvidia-ml.so.1").root / "bin"),
        "absent", ["libnvidia-ml.so.1", "nvidia-smi"],
    ),
    "another vendor's node in WSL": (lambda here: here.node("/dev/dxg"), "absent", []),
    "WSL's library alone": (lambda here: here.file(WSL_LIBRARY), "absent", []),
    "a card in WSL": (lambda here: here.node("/dev/dxg").file(WSL_LIBRARY), "present", ["/dev/dxg", WSL_LIBRARY]),
}  # fmt: skip


@pytest.mark.parametrize("case", PRESENCE)
def test_presence_follows_from_the_evidence(case: str, tmp_path: Path) -> None:
    lay_out, state, words = PRESENCE[case]
    folder = MachineFolder(tmp_path)
    lay_out(folder)
    found = presence(folder.machine({"PATH": str(tmp_path / "bin")}))
    assert found.state == state
    assert not [each for each in words if each not in f"{found.reason} {found.evidence}"], found


def test_another_vendors_card_whose_library_answers_nvml_calls_is_not_present(tmp_path: Path) -> None:
    MachineFolder(tmp_path).pci("0000:07:00.0", "1d22", "3684", "1200").node("/dev/xpuctrl", "/dev/xpu0")
    code = "answer = [backend.presence(machine).state, probe.available(machine).reason]"
    state, reason = in_child(code, nvml_environ(tmp_path, nvml_text([nvml_card(0)])))
    assert state == "absent" and "no NVIDIA card" in reason


def test_cards_in_wsl_are_listed_and_sampled(tmp_path: Path) -> None:
    MachineFolder(tmp_path).node("/dev/dxg").file(WSL_LIBRARY)
    code = (
        "devices = backend.devices(machine)\n"
        "answer = [probe.available(machine).available, devices[0].id, devices[0].problem, "
        "probe.sample(devices, None)[0].used_bytes]"
    )
    assert in_child(code, nvml_environ(tmp_path, nvml_text([nvml_card(0)]))) == [True, uuid(0), "", GIB]


# --- cards by NVML ---------------------------------------------------------------------------------------------------


class ByNvml(NamedTuple):
    """A machine, what NVML says there, and what becomes of it: fields of its devices, or words of an error."""

    lay_out: Callable[[Path], object]
    text: str
    expected: Mapping[str, Sequence[object]] | str
    variables: Mapping[str, str] = {}


def on(num_cards: int) -> Callable[[Path], MachineFolder]:
    return lambda root: folder_with_cards(root, num_cards)


def mapped(num_cards: int, *indices: int, minors: Sequence[int] = (), excluded: str = "No") -> Callable[[Path], object]:
    """A machine of which these cards' nodes are here; the driver tells those of `minors`."""

    def lay_out(root: Path) -> None:
        folder = folder_with_cards(root, num_cards)
        for index in set(range(num_cards)) - set(indices):
            (root / f"dev/nvidia{index}").unlink()
        tell_minors(folder, {address(index): index for index in minors}, excluded)

    return lay_out


def says(*cards: Mapping[str, object] | int, slices: Sequence[Mapping[str, object]] = (), errors: str = "") -> str:
    """What NVML says, of cards or of the healthy ones with these numbers."""
    return nvml_text([nvml_card(each) if isinstance(each, int) else each for each in cards], slices, errors=errors)


def broken(index: int, errors: str, **changed: object) -> dict[str, object]:
    return nvml_card(index, errors=errors, **changed)


def part(number: int, name: str, **fields: object) -> dict[str, object]:
    own = f"MIG-aaaaaaaa-0000-5000-8000-00000000000{number}"
    return {"card": 0, "uuid": own, "name": f"{A100} {name}", "total": 4864 * MIB, **fields}


HANDLE, MEMORY = "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo"
SLICES = [part(1, "MIG 3g.20gb", total=20 * GIB), {"card": 0, "uuid": "-"}, part(2, "MIG 1g.5gb")]
SHARED = "memory shared with the other compute"
ON_BUS, NOT_COUNTED = "on the bus", "NVML does not list it"
ALL_16 = range(16)
BY_NVML = {
    "all that is known": ByNvml(on(16), says(*ALL_16), {
        "id": [uuid(index) for index in ALL_16], "pci_address": [address(index) for index in ALL_16],
        "physical_index": list(ALL_16), "model": ["A100-SXM4-40GB"] * 16, "short_name": ["A100"] * 16,
        "memory_bytes": [TOTAL] * 16,
    }),
    "a lowered power limit": ByNvml(on(1), says(nvml_card(0, limit=250000)), {
        "power_limit_watts": ["250"], "power_default_limit_watts": ["400"],
    }),
    "a limit that cannot be read": ByNvml(on(1), says(nvml_card(0, limit=None, default_limit=None)), {
        "power_limit_watts": [None], "power_default_limit_watts": [None],
    }),
    "an unknown card": ByNvml(on(1), says(nvml_card(0, name="NVIDIA GH200 480GB")), {
        "model": ["NVIDIA GH200 480GB"], "short_name": ["NVIDIA GH200 480GB"],
    }),
    "a variable by index and UUID": ByNvml(
        on(4), says(*range(4)), {"physical_index": [2, 0]}, {"CUDA_VISIBLE_DEVICES": f"2,{uuid(0)[:12]},7,1"},
    ),
    # lost cards
    **{
        f"a card that fell off the bus, seen by {call}": ByNvml(on(3), says(0, broken(1, f"{call}:15"), 2), {
            "id": [uuid(0), address(1), uuid(2)], "physical_index": [0, 1, 2], "memory_bytes": [TOTAL, None, TOTAL],
            "problem": ["", "NVML 15", ""],
        })
        for call in (HANDLE, "nvmlDeviceGetPciInfo_v3")
    },
    "a lost card without a place": ByNvml(on(1), says(0, broken(1, f"{HANDLE}:15")), {
        "id": [uuid(0), "nvml-index-1"], "pci_address": [address(0), ""],
    }),
    "a card that loses its memory": ByNvml(on(1), says(broken(0, f"{MEMORY}:15,{MEMORY}_v2:15")), {
        "id": [uuid(0)], "memory_bytes": [None], "problem": ["NVML 15"],
    }),
    **{
        f"a card that is not mapped for us, {code}": ByNvml(on(2), says(broken(0, f"{HANDLE}:{code}"), 1), {
            "id": [uuid(1)],
        })
        for code in (4, 17)
    },
    "a card that NVML does not count": ByNvml(on(8), says(*(index for index in range(8) if index != 3)), {
        "id": [*(uuid(index) for index in range(8) if index != 3), address(3)], "problem": [""] * 7 + [NOT_COUNTED],
    }),
    "all cards lost": ByNvml(on(2), says(), {"id": [address(0), address(1)], "problem": [ON_BUS] * 2}),
    "one lost by its handle and one not counted": ByNvml(on(3), says(0, broken(1, f"{HANDLE}:15")), {
        "id": [uuid(0), address(1), address(2)], "problem": ["", "NVML 15", "NVML 15"],
    }),
    "cards of the host that are not mapped": ByNvml(mapped(8, 0, 1), says(0, 1), {"problem": [""] * 2}),
    "nor are they lost where the driver tells": ByNvml(mapped(8, 0, 1, minors=range(8)), says(0, 1), {
        "problem": [""] * 2,
    }),
    "a lost one of two that are mapped": ByNvml(mapped(8, 0, 1, minors=range(8)), says(0), {
        "id": [uuid(0), address(1)], "problem": ["", ON_BUS],
    }),
    "lost cards are counted where nothing says whose the nodes are": ByNvml(mapped(8, 2, 5, 7), says(5), {
        "id": [uuid(5), "unlisted-1", "unlisted-2"],
        "problem": ["", "NVML lists 1 of the 3 cards whose nodes are here (/dev/nvidia2, /dev/nvidia5, ",
                    "NVML lists 1 of the 3"],
    }),
    "one that is not mapped for us counts": ByNvml(mapped(8, 2, 5, 7), says(5, broken(2, f"{HANDLE}:4")), {
        "id": [uuid(5), "unlisted-1"],
    }),
    "one that is lost by its handle counts": ByNvml(mapped(8, 2, 5, 7), says(5, broken(2, f"{HANDLE}:15"), 7), {
        "physical_index": [0, 1, 2],
    }),
    "where the driver tells of one, the others are not ours": ByNvml(mapped(8, 2, 5, 7, minors=[5]), says(5), {
        "id": [uuid(5)],
    }),
    "a card that another driver holds": ByNvml(mapped(2, 0, 1, minors=[0]), says(0), {"id": [uuid(0)]}),
    "a card that is excluded": ByNvml(mapped(2, 0, 1, minors=[1], excluded="Yes"), says(0), {"id": [uuid(0)]}),
    # cards that need a reset, and what is no problem
    **{
        f"a sick card: {words}": ByNvml(on(2), says(nvml_card(0, **changed), 1), {
            "id": [uuid(0), uuid(1)], "model": ["A100-SXM4-40GB"] * 2, "problem": [words, ""],
        })
        for words, changed in {
            "NVML 16": {"errors": f"{MEMORY}:16,{MEMORY}_v2:16"},
            "nvmlDeviceGetTemperature": {"errors": "nvmlDeviceGetTemperature:16"},
            "NVML 15": {"errors": "nvmlDeviceGetUtilizationRates:15"},
            "nvmlDeviceGetMigMode": {"errors": "nvmlDeviceGetMigMode:16"},
            "nvmlDeviceGetRemappedRows": {"errors": "nvmlDeviceGetRemappedRows:16"},
            "1 row waits to be remapped": {"rows_uncorrectable": 1, "rows_pending": 1},
            "rows wait (of 3 that went bad) to be remapped": {"rows_uncorrectable": 3, "rows_pending": 1},
            "needs service": {"rows_uncorrectable": 3, "rows_failed": 1},
            "pages wait to be retired": {"rows_uncorrectable": None, "pages_pending": 1},
        }.items()
    },
    **{
        f"a healthy card with {', '.join(changed)}": ByNvml(on(1), says(nvml_card(0, **changed)), {
            "problem": [""], "memory_bytes": [TOTAL],
        })
        for changed in (
            {"rows_uncorrectable": 3}, {"rows_pending": 1}, {"rows_uncorrectable": None, "pages_pending": None},
            {"utilization": None, "celsius": None, "milliwatts": None},
        )
    },
    **{
        f"a card whose memory is the host's: {words}": ByNvml(on(1), says(nvml_card(0, name="GB10", **changed)), {
            "model": ["GB10"], "memory_bytes": [None], "problem": [""], "memory_missing": [words],
        })
        for words, changed in {
            "NVML 3": {"errors": f"{MEMORY}:3,{MEMORY}_v2:3"},
            "a total of 0 bytes": {"total": 0, "used": 0, "reserved": 0},
        }.items()
    },
    # MIG
    "slices with their own memory": ByNvml(on(2), says(nvml_card(0, mig=1), 1, slices=SLICES), {
        "slice": ["MIG 3g.20gb", "MIG 1g.5gb", ""], "memory_bytes": [20 * GIB, 4864 * MIB, TOTAL],
        "id": [SLICES[0]["uuid"], SLICES[2]["uuid"], uuid(1)], "pci_address": [address(0), address(0), address(1)],
        "physical_index": [0, 0, 1], "card": [uuid(0), uuid(0), None],
        "model": [f"{A100} MIG 3g.20gb", f"{A100} MIG 1g.5gb", "A100-SXM4-40GB"],
    }),
    **{
        f"compute instances of one GPU instance, {name}": ByNvml(
            on(1),
            says(nvml_card(0, mig=1), slices=[
                part(1, name, instance=1), part(2, name, instance=1), part(3, "MIG 1g.5gb", instance=2),
            ]),
            {"slice": [f"{name}, {SHARED}", f"{name}, {SHARED}", "MIG 1g.5gb"]},
        )
        for name in ("MIG 1c.3g.20gb", "MIG 3g.20gb")
    },
    "slices count as their card among the nodes": ByNvml(
        mapped(3, 0, 1), says(nvml_card(0, mig=1), 1, slices=SLICES), {"pci_address": [address(0)] * 2 + [address(1)]},
    ),
    "also where a whole card is lost": ByNvml(mapped(3, 0, 1), says(nvml_card(0, mig=1), slices=SLICES), {
        "id": [SLICES[0]["uuid"], SLICES[2]["uuid"], "unlisted-1"],
    }),
    "slices of a sick card": ByNvml(
        on(1), says(broken(0, "nvmlDeviceGetTemperature:16", mig=1), slices=SLICES), {"problem": ["NVML 16"] * 2},
    ),
    "MIG mode without slices": ByNvml(on(1), says(nvml_card(0, mig=1)), {"id": [uuid(0)], "problem": ["no slices"]}),
    # no answer, and no tool either
    "cards that are all refused": ByNvml(
        on(2), says(*(broken(index, f"{HANDLE}:4") for index in range(2))), "counts 2 cards and shows none",
        {"PATH": os.devnull},
    ),
    **{
        f"a driver that does not answer, {code}": ByNvml(
            on(2), says(0, errors=f"nvmlInitWithFlags:{code}"), f"NVML {code}", {"PATH": os.devnull},
        )
        for code in (9, 18, 999)
    },
    "a library that speaks for another vendor's card": ByNvml(
        on(2), says(nvml_card(0, pci_id="0x36841d22")), "PCI vendor 1d22", {"PATH": os.devnull},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def by_nvml(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environs = {}
    for case, (lay_out, text, _, variables) in BY_NVML.items():
        root = tmp_path_factory.mktemp("machine")
        lay_out(root)
        environs[case] = {**nvml_environ(root, text), **variables}
    return in_child_each("answer = backend.devices(machine)", environs)


@pytest.mark.parametrize("case", BY_NVML)
def test_devices_are_what_nvml_bus_and_nodes_say(case: str, by_nvml: dict[str, Any]) -> None:
    expected = BY_NVML[case].expected
    if isinstance(expected, str):
        assert by_nvml[case].startswith("ToolFailed: ") and expected in by_nvml[case] and "nvidia-smi" in by_nvml[case]
    else:
        check(msgspec.convert(by_nvml[case], list[Device]), expected)


def check(devices: Sequence[Device], expected: Mapping[str, Sequence[object]]) -> None:
    """Attributes and properties; some only hold the expected words."""
    for name, values in expected.items():
        told = [getattr(device, name, device.properties.get(name)) for device in devices]
        if name in ("problem", "slice", "memory_missing"):
            pairs = zip_longest(told, values, fillvalue="")
            told = [words if words and words in (each or "") else each for each, words in pairs]
        assert told == values, name


def test_versions_of_driver_and_cuda_are_fields_of_their_own(tmp_path: Path) -> None:
    """Also where the binding gives bytes."""
    folder_with_cards(tmp_path)
    code = (
        "import pynvml\n"
        "for name in ('nvmlDeviceGetName', 'nvmlDeviceGetUUID', 'nvmlSystemGetDriverVersion'):\n"
        "    old = getattr(pynvml, name)\n"
        "    setattr(pynvml, name, lambda *given, old=old: old(*given).encode())\n"
        "answer = [backend.versions(machine), backend.devices(machine)[0].id]"
    )
    versions, device_id = in_child(code, nvml_environ(tmp_path, says(0)))
    assert (versions["driver"], versions["cuda_driver"], device_id) == (DRIVER, "12.4", uuid(0))
    assert versions["nvml"].startswith("nvidia-ml-py ")


# --- cards by nvidia-smi ---------------------------------------------------------------------------------------------

PLACES = ("0000:3b:00.0", "0000:af:00.0")
LOST = "Unable to determine the device handle for GPU"
TABLE, ONE_LISTED = "".join(QUERY.splitlines(True)[:2]), LIST.splitlines(True)[0]
ROWS, PAGES = ", ".join(smi.ROW_FIELDS), ", ".join(smi.PAGE_FIELDS)


def tool_says(query: str, listed: str, *others: Answer, places: Sequence[str] = PLACES) -> Callable[[Path], Machine]:
    return answering(Answer(smi.QUERY_GPU, query), Answer(smi.LIST, listed), *others, places=places)


def answering(*answers: Answer, places: Sequence[str] = PLACES) -> Callable[[Path], Machine]:
    def lay_out(root: Path) -> Machine:
        write_tool(root / "bin", "nvidia-smi", answers)
        return machine_at(root, places).machine({"PATH": str(root / "bin")})

    return lay_out


def lost_in(query: str, listed: str, stream: str = "stdout", code: int = 0) -> Callable[[Path], Machine]:
    """The second card is lost: the tool says so in its answers to two questions, in one of its streams."""
    answers = []
    for asked, said, words in ((smi.QUERY_GPU, TABLE, query), (smi.LIST, ONE_LISTED, listed)):
        lost = f"{LOST}{words}\n" if words else ""
        both = (lost + said, "") if stream == "stdout" else (said, lost)
        answers.append(Answer(asked, *both, returncode=code if words else 0))
    return answering(*answers)


def only_card_lost(stream: str) -> Callable[[Path], Machine]:
    lost, none = f"{LOST}0: 0000:3B:00.0: Unknown Error\n", "No devices were found\n"
    both = (lost + none, "") if stream == "stdout" else (none, lost)
    return answering(*(Answer(asked, *both) for asked in (smi.QUERY_GPU, smi.LIST)), places=PLACES[:1])


def by_tool(root: Path, num_cards: int = 2) -> Machine:
    write_nvidia_smi(root / "bin", num_cards)
    return folder_with_cards(root).machine({"PATH": str(root / "bin")})


def sick_rows(question: tuple[str, ...], header: str, sick: str, fine: str) -> Callable[[Path], Machine]:
    return tool_says(QUERY, LIST, Answer(question, f"{header}\n{FIRST}, {sick}\n{SECOND}, {fine}\n"))


HOSTS_MEMORY = QUERY.replace("40960 MiB, 13213 MiB", "[N/A], [N/A]").replace("40960 MiB, 4 MiB", "0 MiB, 0 MiB")
IN_STDERR = ("1: 0000:AF:00.0: Unknown Error", "")
DEVICES: dict[str, tuple[Callable[[Path], Machine], dict[str, list[object]]]] = {
    "all that is known": (by_tool, {
        "id": [uuid(0), uuid(1)], "pci_address": [address(0), address(1)], "model": ["A100-SXM4-40GB"] * 2,
        "memory_bytes": [TOTAL] * 2, "source": ["nvidia-smi"] * 2, "power_limit_watts": ["400.00"] * 2,
        "power_default_limit_watts": ["400.00"] * 2,
    }),
    "slices, of unknown memory": (
        tool_says(transcript("query_gpu_mig"), "".join(LIST_MIG.splitlines(True)[:3]), places=PLACES[:1]), {
            "slice": ["MIG 3g.20gb", "MIG 1g.5gb"], "memory_bytes": [None] * 2,
            "memory_missing": [smi.NOT_OF_A_SLICE] * 2,
            "id": [f"MIG-0a1b2c3d-4e5f-5061-8273-94a5b6c7d8e{digit}" for digit in "9a"],
        },
    ),
    **{
        f"a lost card: {query or listed or 'by the bus'}, {where}": (lost_in(query, listed, *how), {
            "pci_address": order, "problem": problem,
        })
        for query, listed, where, how, order, problem in (
            ("", "", "", (), [*PLACES], ["", "does not list it"]),
            ("1: 0000:AF:00.0: Unknown Error", "", "stdout", (), [*PLACES[::-1]], ["Unknown Error", ""]),
            (*IN_STDERR, "stderr", ("stderr",), [*PLACES[::-1]], ["Unknown Error", ""]),
            (*IN_STDERR, "stderr, exit 15", ("stderr", 15), [*PLACES[::-1]], ["Unknown Error", ""]),
            ("0000:AF:00.0: Unknown Error", "0000:AF:00.0: Unknown Error", "both", (), [*PLACES[::-1]],
             ["Unknown Error", ""]),
            (" 0000:AF:00.0: GPU is lost.  Reboot the system to recover this GPU", "1: Unknown Error", "both", (),
             [*PLACES[::-1]], ["GPU is lost", ""]),
            ("1: Unknown Error", "1: Unknown Error", "by its number", (), [*PLACES[::-1]], ["Unknown Error", ""]),
            ("", "1: Unknown Error", "by its number in the list", (), [*PLACES], ["", "Unknown Error"]),
        )
    },
    **{
        f"the only card is lost, {stream}": (only_card_lost(stream), {
            "pci_address": [PLACES[0]], "problem": ["Unknown Error"],
        })
        for stream in ("stdout", "stderr")
    },
    **{
        cell: (tool_says(QUERY.replace("13213 MiB", cell), LIST), {"problem": [cell.strip("[]"), ""]})
        for cell in ("[GPU requires reset]", "[GPU is lost]")
    },
    "memory that the tool does not know": (tool_says(HOSTS_MEMORY, LIST), {
        "memory_bytes": [None, None], "problem": ["", ""],
        "memory_missing": ["the tool says '[N/A]'", "the tool says a total of 0"],
    }),
    **{
        f"memory that waits for a reset: {sick}": (sick_rows(question, header, sick, fine), {
            "problem": ["uncorrectable memory errors", ""],
        })
        for question, header, sick, fine in (
            (smi.QUERY_ROWS, ROWS, "2, 1, 0", "0, 0, 0"), (smi.QUERY_ROWS, ROWS, "2, Yes, No", "0, 0, 0"),
            (smi.QUERY_PAGES, PAGES, "Yes", "No"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", DEVICES)
def test_devices_are_what_tool_and_bus_say_where_there_is_no_library(case: str, tmp_path: Path) -> None:
    lay_out, expected = DEVICES[case]
    check(BACKEND.devices(lay_out(tmp_path)), expected)


def test_cards_of_another_job_are_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group refuses their nodes, and the tool does not list them."""
    machine = by_tool(tmp_path, 1)
    check(BACKEND.devices(machine), {"problem": ["", ON_BUS]})
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "nvidia1" and bool(mode))
    check(BACKEND.devices(machine), {"problem": [""]})


def test_without_library_and_tool_both_are_named(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"NVML.*nvidia-smi is neither on PATH"):
        BACKEND.devices(folder_with_cards(tmp_path).machine({"PATH": str(tmp_path / "bin")}))


OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@host)\n"


def test_the_driver_version_comes_from_the_kernel_where_there_is_no_library(tmp_path: Path) -> None:
    """The open module has it behind the architecture."""
    assert BACKEND.versions(folder_with_cards(tmp_path / "a").machine()) == {"driver": DRIVER}
    opened = MachineFolder(tmp_path / "b").file("/proc/driver/nvidia/version", OPEN_MODULE)
    assert BACKEND.versions(opened.machine()) == {"driver": "570.86.15"}
    assert BACKEND.versions(MachineFolder(tmp_path / "empty").machine()) == {}


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
    found = find_model(BACKEND.models(), [name])
    assert (found.name if found else None) == model


# --- worker ----------------------------------------------------------------------------------------------------------


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
    said = BACKEND.wrong_build(SimpleNamespace(version=SimpleNamespace(**version)))
    assert words in said and bool(said) == bool(words)


def test_a_torch_that_is_patched_for_other_cards_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch_xmlir.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    torch = SimpleNamespace(version=SimpleNamespace(cuda="12.9", hip=None))
    assert "torch_xmlir" in BACKEND.wrong_build(torch)
    monkeypatch.setenv("DISABLE_XPYTORCH", "1")
    assert BACKEND.wrong_build(torch) == ""


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


@pytest.mark.full
def test_the_command_line_shows_the_problem_of_a_card(tmp_path: Path) -> None:
    folder_with_cards(tmp_path)
    environ = nvml_environ(tmp_path, says(0, broken(1, f"{MEMORY}_v2:16,{MEMORY}:16")))
    plan = ("plan", "distilbert", "--vendor", "nvidia", "--profile", "tiny")
    without, with_it, devices = (
        subprocess.run(
            [sys.executable, "-m", "flagperf", *arguments], env=environ, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )
        for arguments in (plan, (*plan, "--devices", "2"), ("devices",))
    )  # fmt: skip
    words = f"{uuid(1)} cannot be used: {MEMORY}: "
    assert (without.returncode, with_it.returncode) == (0, 2)
    assert words in without.stdout and words in with_it.stderr and words in devices.stderr

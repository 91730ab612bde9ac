"""Machines with MetaX cards, laid out in folders, and the outputs of mx-smi with what they say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from flagperf.api import Device, Machine, Reading
from flagperf.testing import (
    Answer,
    MachineFolder,
    SimulatedCard,
    Simulation,
    simulated_environ,
    write_memory,
    write_tool,
)
from flagperf_metax.smi import (
    parse_board_power,
    parse_dmon,
    parse_json,
    parse_list,
    parse_memory,
    parse_table,
    parse_temperature,
    parse_usage,
    parse_version,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
FIRST, SECOND = "0000:1c:00.0", "0000:9d:00.0"
FIRST_UUID, SECOND_UUID = "GPU-0f1e2d3c-1111-4a5b-8c6d-00000000000a", "GPU-0f1e2d3c-2222-4a5b-8c6d-00000000000b"
SLICE, SLICE_UUID = f"{FIRST}/sgpu-2", "GPU-7a7b7c7d-3333-4e4f-9a9b-00000000000c"


def transcript(name: str) -> str:
    return (Path(__file__).parent / "transcripts" / f"{name}.txt").read_text()


def moving_memory_text() -> str:
    """--show-memory of two cards, whose use stands in the simulation's memory file."""
    text = transcript("show_memory")
    return text.replace("1048576 KB", "@USED_0_KiB@ KB").replace("2097152 KB", "@USED_1_KiB@ KB")


ANSWERS = (
    Answer(("-L",), transcript("list")),
    Answer(("--show-memory",), moving_memory_text()),
    Answer(("-j",), transcript("json")),
    Answer(("--show-board-power",), transcript("show_board_power")),
    Answer(("--show-temperature",), transcript("show_temperature")),
    Answer(("--show-usage",), transcript("show_usage")),
    Answer(("--show-version",), transcript("show_version")),
    Answer((), transcript("table_c")),
)

SLICED_ANSWERS = (
    Answer(("-L",), transcript("list_sgpu")),
    Answer(("-j",), transcript("json_sgpu")),
    Answer((), transcript("table_c_sgpu")),
)


def metax_folder(root: Path) -> MachineFolder:
    """Two C500 with their node and module."""
    folder = MachineFolder(root).node("/dev/mxcd").module("metax")
    for address in (FIRST, SECOND):
        folder.pci(address, "9999", "0a01", "0302", driver="METAX")
    return folder


def with_tool(
    folder: MachineFolder, answers: Sequence[Answer] = ANSWERS, used_bytes: Sequence[int] = (0, 0), **environ: str
) -> Machine:
    """The machine with an mx-smi on its PATH that answers so."""
    bin_folder, memory = folder.root / "bin", folder.root / "memory"
    write_memory(memory, used_bytes)
    write_tool(bin_folder, "mx-smi", answers, memory)
    return folder.machine({"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", **environ})


def without(answers: Sequence[Answer], *arguments: str) -> tuple[Answer, ...]:
    return tuple(answer for answer in answers if tuple(answer.arguments) != arguments)


def replaced(answers: Sequence[Answer], *changed: Answer) -> tuple[Answer, ...]:
    new = {tuple(answer.arguments): answer for answer in changed}
    return tuple(new.get(tuple(answer.arguments), answer) for answer in answers)


def card(index: int = 0, **fields: str) -> Device:
    address, uuid = ((FIRST, FIRST_UUID), (SECOND, SECOND_UUID))[index]
    return Device(uuid, "C500", "C500", index, 64 * GIB, uuid=uuid, pci_address=address, **fields)


def slice_device() -> Device:
    """The slice of list_sgpu.txt."""
    return Device(
        SLICE_UUID,
        "C500",
        "C500",
        0,
        32000 * MIB,
        uuid=SLICE_UUID,
        pci_address=FIRST,
        slice="sGPU 2: 50% compute, 31.250 GiB",
        properties={"sgpu": SLICE},
    )


# --- what the transcripts say ----------------------------------------------------------------------------------------

_IDS = [
    {"index": str(index), "name": "MXC500", "pci_address": address} for index, address in enumerate((FIRST, SECOND))
]
_NAMED = [{**each, "name": "MetaX C500"} for each in _IDS]
_VERSIONS = {"driver": "3.1.4", "maca": "3.2.1.7", "bios": "1.27.3.0"}


def _table(
    identities: Sequence[Mapping[str, str]], versions: Mapping[str, str], limit: Mapping[str, str]
) -> tuple[Reading, ...]:
    figures = ((1 * GIB, 97.0, 199.0, 61.0), (2 * GIB, 0.0, 58.0, 36.0))
    return tuple(
        Reading(ids["pci_address"], used, 64 * GIB, util, watts, celsius, properties={**ids, **versions, **limit})
        for ids, (used, util, watts, celsius) in zip(identities, figures, strict=True)
    )


def _table_versions(mx_smi: str, driver: str, maca: str, bios: str) -> dict[str, str]:
    return {"mx_smi": mx_smi, "driver": driver, "maca": maca, "bios": bios}


_LIMIT = {"power_limit_watts": "350"}
_A0 = _table_versions("2.0.9", "2.1.3", "2.0", "1.0.99.0")
_A1, _A2, _B = (_table_versions(release, "3.0.2", "3.1.0.4", "1.26.0.0") for release in ("2.1.12", "2.2.4", "2.2.8"))
_C = _table_versions("2.2.12", **_VERSIONS)
_JSON = [
    Reading(
        ids["pci_address"], None, None, util, watts, celsius,
        properties={"index": ids["index"], "pci_address": ids["pci_address"], **_C}, clock_mhz=1500.0,
    )
    for ids, util, watts, celsius in ((_IDS[0], 97.0, 199.875, 61.5), (_IDS[1], 0.0, 58.625, 36.25))
]  # fmt: skip
_UNIT_UNKNOWN = {"used_bytes": "mx-smi -j does not say in which unit a slice's vram_used is"}
_NOT_MAPPED = {"problem": "MetaX Sysfs File Unaccessible"}
_SAYS_NA = "the tool says 'N/A'"

SAID = {
    "show_memory": (
        parse_memory,
        (
            Reading(FIRST, 1 * GIB, 64 * GIB, properties=_IDS[0]),
            Reading(SECOND, 2 * GIB, 64 * GIB, properties=_IDS[1]),
        ),
    ),
    "show_memory_sysfs_error": (
        parse_memory,
        (
            Reading(FIRST, 1 * GIB, 64 * GIB, properties=_IDS[0]),
            Reading(
                SECOND,
                missing=dict.fromkeys(
                    ("used_bytes", "total_bytes"), "mx-smi: GPU#1 show-memory Sysfs error: No such file or directory"
                ),
                properties=_IDS[1],
            ),
        ),
    ),
    "show_board_power": (
        parse_board_power,
        (
            Reading(FIRST, power_watts=199.875, properties={**_IDS[0], "power_limit_watts": "350.000"}),
            Reading(SECOND, power_watts=58.625, properties={**_IDS[1], "power_limit_watts": "350.000"}),
        ),
    ),
    "show_temperature": (
        parse_temperature,
        (
            Reading(FIRST, temperature_celsius=61.5, properties=_IDS[0]),
            Reading(SECOND, temperature_celsius=36.25, properties=_IDS[1]),
        ),
    ),
    "show_usage": (
        parse_usage,
        (
            Reading(FIRST, utilisation_percent=97.0, properties=_IDS[0]),
            Reading(SECOND, utilisation_percent=0.0, properties=_IDS[1]),
        ),
    ),
    "show_version": (
        parse_version,
        (Reading(FIRST, properties={**_IDS[0], **_VERSIONS}), Reading(SECOND, properties={**_IDS[1], **_VERSIONS})),
    ),
    "json": (parse_json, tuple(_JSON)),
    "json_sgpu": (
        parse_json,
        (
            _JSON[0],
            Reading(
                SLICE, None, 32000 * MIB, 40.0, missing=_UNIT_UNKNOWN,
                properties={"pci_address": FIRST, "slice": "sGPU 2: 50% compute, 32000 MiB"},
            ),
        ),
    ),
    "list": (
        parse_list,
        (
            Reading(FIRST, properties={**_IDS[0], "uuid": FIRST_UUID}),
            Reading(SECOND, properties={**_IDS[1], "uuid": SECOND_UUID}),
        ),
    ),
    "list_one_mapped": (
        parse_list,
        (
            Reading(SECOND, properties={"index": "0", "name": "MXC550", "pci_address": SECOND, "uuid": SECOND_UUID}),
            Reading(FIRST, properties={"index": "1", "name": "MXC550", "pci_address": FIRST, **_NOT_MAPPED}),
        ),
    ),
    "list_sgpu": (
        parse_list,
        (
            Reading(FIRST, properties={**_IDS[0], "uuid": FIRST_UUID}),
            Reading(
                SLICE, None, 32000 * MIB,
                properties={"pci_address": FIRST, "uuid": SLICE_UUID, "slice": "sGPU 2: 50% compute, 31.250 GiB"},
            ),
            Reading(SECOND, properties={**_IDS[1], **_NOT_MAPPED}),
        ),
    ),
    "dmon_c500": (
        parse_dmon,
        (
            Reading(FIRST, None, None, 97.0, 199.0, 61.0, properties={"index": "0", "pci_address": FIRST}),
            Reading(SECOND, None, None, 0.0, 58.0, 36.0, properties={"index": "1", "pci_address": SECOND}),
        ),
    ),
    "dmon_c600": (
        parse_dmon,
        (
            Reading(
                FIRST, None, None, 12.0, None, 52.0, missing={"power_watts": _SAYS_NA},
                properties={"index": "0", "pci_address": FIRST},
            ),
        ),
    ),
    "table_a0": (parse_table, _table(_IDS, _A0, {})),
    "table_a1": (parse_table, _table(_NAMED, _A1, _LIMIT)),
    "table_a2": (
        parse_table,
        (
            _table(_NAMED, _A2, _LIMIT)[0],
            Reading(
                SECOND, 2 * GIB, 64 * GIB, None, 58.0, None,
                missing={"utilisation_percent": _SAYS_NA, "temperature_celsius": _SAYS_NA},
                properties={**_NAMED[1], **_A2, "problem": "Not Available"},
            ),
        ),
    ),
    "table_b": (parse_table, _table(_NAMED, _B, _LIMIT)),
    "table_c": (parse_table, _table(_NAMED, _C, _LIMIT)),
    "table_c_sgpu": (
        parse_table,
        (
            _table(_NAMED, _C, _LIMIT)[0],
            Reading(
                SLICE, 512 * MIB, 32000 * MIB, 40.0,
                properties={"pci_address": FIRST, "slice": "sGPU 2: 50% compute, 32000 MiB"},
            ),
        ),
    ),
}  # fmt: skip
"""Transcript -> the function that reads it, and exactly what it says."""


def lay_out(folder: Path) -> Simulation:
    """Two cards with an idle memory and an mx-smi on PATH."""
    metax_folder(folder)
    memory = folder / "memory"
    write_memory(memory, (0, 0))
    write_tool(folder / "bin", "mx-smi", ANSWERS, memory)
    cards = tuple(
        SimulatedCard(uuid, 64 * GIB, uuid=uuid, pci_address=address)
        for uuid, address in ((FIRST_UUID, FIRST), (SECOND_UUID, SECOND))
    )
    return Simulation(folder, cards, memory, simulated_environ(folder, folder / "bin"), {"maca": "3.2.1.7"})

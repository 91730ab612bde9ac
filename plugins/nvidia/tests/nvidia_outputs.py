"""What nvidia-smi prints, and exactly what it says: the tables of the suite for its parsers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import FIGURES, ProcessReading, Reading
from flagperf.testing import Recorded, Refused
from flagperf.testing.mutations import changed
from flagperf_nvidia.smi import ROW_FIELDS, parse_compute_apps, parse_health, parse_list, parse_query_gpu

MIB = 1 << 20
FIRST, SECOND = (f"GPU-1b7d4e02-90aa-4c31-8f65-3d2c1b0a9f8{digit}" for digit in "ef")
A100 = "NVIDIA A100-SXM4-40GB"


def transcript(name: str) -> str:
    return (Path(__file__).parent / "transcripts" / f"{name}.txt").read_text()


def card(index: int, limit: str, *figures: float, **missing: str) -> Reading:
    uuid, address = ((FIRST, "0000:3b:00.0"), (SECOND, "0000:af:00.0"))[index]
    properties = {
        "index": str(index), "uuid": uuid, "name": A100, "driver": "535.161.08", "mig_mode": "Disabled",
        "power_limit_watts": limit, "power_default_limit_watts": "400.00", "pci_address": address,
    }  # fmt: skip
    used_mib, *others = figures
    return Reading(uuid, int(used_mib) * MIB, 40960 * MIB, *others, missing=missing, properties=properties)


def but(reading: Reading, without: str = "", **fields: Any) -> Reading:
    """A reading with other fields, and without some of its properties."""
    kept = {name: value for name, value in reading.properties.items() if name not in without.split()}
    return msgspec.structs.replace(reading, **{**fields, "properties": kept | fields.get("properties", {})})


def listed(index: int, uuid: str, part: str = "") -> Reading:
    """A line of -L: a card or, with its words, a slice of it."""
    whole = (FIRST, SECOND)[index]
    told = {"slice": f"MIG {part}", "card": whole} if part else {}
    name = f"{A100} MIG {part}" if part else A100
    return Reading(uuid, properties={"index": str(index), "name": name, "uuid": uuid, **told})


def lost(line: str, key: str, index: str = "") -> Reading:
    named = {"index": index, "pci_address": key if ":" in key else ""}
    properties = {"problem": line, **{name: value for name, value in named.items() if value}}
    return Reading(key, missing=dict.fromkeys(FIGURES, line), properties=properties)


CARDS = (card(0, "350.00", 13213, 97.0, 317.42, 61.0), card(1, "400.00", 4, 0.0, 52.07, 33.0))
LISTED = (listed(0, FIRST), listed(1, SECOND))
APPS = (
    ProcessReading(FIRST, 20411, 12790 * MIB),
    ProcessReading(FIRST, 20977, 406 * MIB),
    ProcessReading(SECOND, 31337, None),
)
LOST_LINE = "Unable to determine the device handle for GPU1: 0000:AF:00.0: Unknown Error"
NO_COLUMN = {
    "utilisation_percent": "no column utilization.gpu", "power_watts": "no column power.draw",
    "temperature_celsius": "no column temperature.gpu",
}  # fmt: skip
T4 = Reading(
    FIRST, None, 15109 * MIB,
    missing={"used_bytes": "the tool says '[N/A]'", "utilisation_percent": "the tool says '[Not Supported]'",
             "power_watts": "the tool says '[Unknown Error]'", "temperature_celsius": "the tool says 'N/A'"},
    properties={"index": "0", "uuid": FIRST, "name": "Tesla T4", "driver": "470.82.01", "pci_address": "0000:3b:00.0"},
)  # fmt: skip
READ = {
    **dict.fromkeys(("query_gpu", "query_gpu_nounits", "query_gpu_noheader", "query_gpu_noheader_nounits"), CARDS),
    "query_gpu_documented": tuple(but(each, "power_default_limit_watts") for each in CARDS),
    "query_gpu_other_order": (
        Reading(SECOND, 777 * MIB, 81920 * MIB, missing=NO_COLUMN, properties={"uuid": SECOND}),
    ),
    "query_gpu_not_available": (T4,),
    "query_gpu_mig": (but(
        card(0, "400.00", 25, 0, 44.1, 35.0), utilisation_percent=None, properties={"mig_mode": "Enabled"},
        missing={"utilisation_percent": "the tool says '[N/A]'"},
    ),),
    "query_gpu_lost": (lost(LOST_LINE, "0000:af:00.0", "1"), CARDS[0]),
    "list": LISTED,
    "list_mig": (
        LISTED[0], listed(0, "MIG-0a1b2c3d-4e5f-5061-8273-94a5b6c7d8e9", "3g.20gb"),
        listed(0, "MIG-0a1b2c3d-4e5f-5061-8273-94a5b6c7d8ea", "1g.5gb"),
        LISTED[1], listed(1, f"MIG-{SECOND}/0/0", "7g.40gb"),
    ),
}  # fmt: skip
RECORDED = tuple(
    Recorded(parse_list if name.startswith("list") else parse_query_gpu, transcript(name), readings)
    for name, readings in READ.items()
)


# --- with one thing changed ------------------------------------------------------------------------------------------

QUERY, LIST, LIST_MIG = transcript("query_gpu"), transcript("list"), transcript("list_mig")
PROCESSES, HEALTH = transcript("compute_apps"), ", ".join(ROW_FIELDS)
NO_ROW = "0, {uuid}, 0000000F:01:00.0, NVIDIA GB10, 580.126.09, {memory}, 0 %, 36, 3.12 W, [N/A], [N/A], {mig}"


def gb10(
    memory: str, used_mib: int | None, total_mib: int | None, problem: str, *why: str, mig: str = "[N/A]"
) -> Recorded:
    """A card of whose memory the tool does not tell all; `why` it has no used and no total."""
    text = f"{QUERY.splitlines()[0]}\n{NO_ROW.format(uuid=FIRST, memory=memory, mig=mig)}\n"
    used, total = (None if mib is None else mib * MIB for mib in (used_mib, total_mib))
    properties = {
        "index": "0", "uuid": FIRST, "name": "NVIDIA GB10", "driver": "580.126.09", "pci_address": "000f:01:00.0",
        **({"problem": problem} if problem else {}),
    }  # fmt: skip
    missing = {name: words for name, words in zip(("used_bytes", "total_bytes"), why, strict=False) if words}
    return Recorded(parse_query_gpu, text, (Reading(FIRST, used, total, 0.0, 3.12, 36.0, missing, properties),))


def health(cells: str, problem: str) -> Recorded:
    properties = {"problem": problem} if problem else {}
    return Recorded(parse_health, f"{HEALTH}\n{SECOND}, {cells}\n", (Reading(SECOND, properties=properties),))


def said(words: str) -> str:
    return f"the tool says {words!r}"


VARIANTS = (
    # every word for nothing is missing, and never zero
    *(
        Recorded(parse_query_gpu, changed(QUERY, "13213 MiB", cell), (
            but(CARDS[0], used_bytes=None, missing={"used_bytes": said(cell)}), CARDS[1],
        ))
        for cell in ("NA", "unknown", "-1", "-1 MiB", "", "[Requested functionality has been deprecated]")
    ),
    gb10("[N/A], [N/A]", None, None, "", said("[N/A]"), said("[N/A]")),
    gb10("0 MiB, 0 MiB", None, None, "", *["the tool says a total of 0"] * 2),
    gb10("[Unknown Error], [Unknown Error]", None, None, "Unknown Error of its memory", said("[Unknown Error]"),
         said("[Unknown Error]")),
    gb10("81559 MiB, [GPU requires reset]", None, 81559, "GPU requires reset", said("[GPU requires reset]")),
    gb10("81559 MiB, 12 MiB", 12, 81559, "GPU is lost", mig="[GPU is lost]"),
    gb10("81559 MiB, 12 MiB", 12, 81559, "", mig="[Insufficient Permissions]"),
    # processes, whose names may hold commas
    *(Recorded(parse_compute_apps, text, APPS) for text in (
        PROCESSES, transcript("compute_apps_noheader_nounits"), changed(PROCESSES, "./burn", "./burn, --fast, 9"),
    )),
    Recorded(parse_compute_apps, f"{FIRST}, 20411, 12790\n", APPS[:1]),
    Recorded(parse_compute_apps, transcript("compute_apps_idle"), ()),
    # memory that waits for a reset
    *(health(cells, "") for cells in ("0, 0, 0", "2, 0, 0", "0, 1, 0", "[N/A], [N/A], [N/A]")),
    health("2, 1, 0", "uncorrectable memory errors: rows wait (of 2 that went bad) to be remapped, which happens when "
                      "the card is reset"),
    health("2, No, Yes", "remapping of bad memory rows has failed: the card needs service"),
)  # fmt: skip
ERRORS = ("no_driver", "mismatch", "permissions", "field", "no_devices")
REFUSED = (
    *(Refused(None, transcript(f"error_{name}")) for name in ERRORS),
    *(Refused(parse, LOST_LINE) for parse in (parse_compute_apps, parse_health)),
    *(Refused(parse_query_gpu, changed(QUERY, old, new)) for old, new in (
        ("memory.used [MiB]", "memory.used [GiB]"),
        ("memory.used [MiB]", "memory.used"),
        ("memory.used [MiB]", "memory.occupied [MiB]"),
        ("memory.used [MiB]", "memory.total [MiB]"),
        ("temperature.gpu", "temperature.gpu [K]"),
        ("13213 MiB", "13213"),
        ("13213 MiB", "13213 GiB"),
        ("13213 MiB", "13.213 MiB"),
        ("13213 MiB", "thirteen"),
        ("97 %, ", ""),
        ("0, GPU-", "zero, GPU-"),
        (FIRST, "GPU-1b7d4e02"),
        (SECOND, FIRST),
        ("00000000:AF:00.0", "00000000:3B:00.0"),
        ("\n1, ", "\n0, "),
        ("Disabled\n", "Disabl\n"),
    )),
    Refused(parse_query_gpu, "uuid, memory.used [MiB]\n[N/A], 12 MiB\n"),
    Refused(parse_query_gpu, QUERY.splitlines()[0] + "\n"),
    *(Refused(parse_list, changed(LIST, old, new)) for old, new in (
        (SECOND, FIRST), ("GPU 0:", "XPU 0:"), ("(UUID: GPU", "(uuid GPU"), (f"GPU 0: {A100}", "  MIG"),
    )),
    # slices below the wrong card, where the line of their own is missing
    Refused(parse_list, "".join(line for line in LIST_MIG.splitlines(True) if not line.startswith("GPU 1")),
            "Device  0"),
    # lines that name no card in a known way
    *(Refused(parse_list, LIST + line + "\n", line) for line in (
        "Unable to determine the device handle for GPU000:BA:80.0: Unknown Error",
        "GPU2: NVIDIA A100-SXM4-40GB (UUID: GPU-1b7d4e02)",
        "GPU0: is fine",
        "WARNING: infoROM is corrupted at gpu 0000:3B:00.0",
    )),
    *(Refused(parse_compute_apps, changed(PROCESSES, old, new, 1)) for old, new in (
        ("[MiB]", "[KiB]"), ("pid", "process"), (", 20411,", ", ,"), ("406 MiB", "406"), ("./burn, ", ""),
    )),
    *(Refused(parse_health, f"{HEALTH}\n{SECOND}, {cells}\n") for cells in (
        "2, maybe, 0", "two, 1, 0", "2, 1", "2, 1, 0, 0",
    )),
)  # fmt: skip


# --- real outputs ----------------------------------------------------------------------------------------------------

H100 = "GPU-00000000-0000-0000-0000-000000000000"
WHAT_THE_EXPORTER_PARSES = "query_gpu_csv_what_the_exporter_parses"
REAL_LOST = {"0000:34:00.0": {"problem": LOST_LINE.replace("AF", "34"), **dict.fromkeys(FIGURES)}}


def h100(used_mib: int, use: float | None, watts: float, celsius: float) -> dict[Any, Any]:
    figures = {
        "used_bytes": used_mib * MIB, "total_bytes": 81559 * MIB, "utilisation_percent": use, "power_watts": watts,
        "temperature_celsius": celsius,
    }  # fmt: skip
    return {parse_query_gpu: {H100: figures}, parse_health: {H100: {"problem": None}}}


def slices(*parts: tuple[str, str | None]) -> dict[Any, Any]:
    return {parse_list: {uuid: {"slice": part} for uuid, part in parts}}


CAPTURES = {
    f"h100_idle_{WHAT_THE_EXPORTER_PARSES}": h100(0, 0.0, 69.85, 41.0),
    f"h100_load_{WHAT_THE_EXPORTER_PARSES}": h100(19818, 100.0, 631.95, 59.0),
    f"h100mig_idle_{WHAT_THE_EXPORTER_PARSES}": h100(59, None, 71.15, 42.0),
    "h100_capabilities_list_L": slices((H100, None)),
    "h100mig_capabilities_list_L": slices((H100, None), *(
        (f"MIG-0000000{number}-0000-0000-0000-00000000000{number}", f"MIG {part}")
        for number, part in enumerate(("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"))
    )),
    "a100_sxm4_40gb_mig_list_L": slices(
        ("GPU-c4e0b2a1-1111-2222-3333-444455556666", None),
        ("MIG-11110000-0000-0000-0000-000000000000", "MIG 1g.5gb"),
        ("MIG-11110000-0000-0000-0000-000000000001", "MIG 1g.5gb"),
        ("GPU-c4e0b2a1-1111-2222-3333-444455556667", None),
        ("MIG-22220000-0000-0000-0000-000000000000", "MIG 1g.5gb"),
    ),
    "h100_idle_query_compute_apps_per_process": {parse_compute_apps: {}},
    "h100mig_idle_query_compute_apps_per_process": {parse_compute_apps: {}},
    "h100_load_query_compute_apps_per_process": {parse_compute_apps: {
        pid: {"used_bytes": mib * MIB} for pid, mib in (("11327", 2566), ("11328", 1542), ("11345", 15690))
    }},
    "error_lost_gpu_handle": {parse_query_gpu: REAL_LOST, parse_list: REAL_LOST},
}  # fmt: skip

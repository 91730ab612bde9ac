"""What mx-smi prints, and exactly what it says: the tables of the suite for its parsers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import Reading
from flagperf.testing import Recorded, Refused
from flagperf.testing.mutations import changed
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


def named(index: int, name: str = "MXC500", **more: str) -> dict[str, str]:
    return {"index": str(index), "name": name, "pci_address": (FIRST, SECOND)[index], **more}


def both(first: dict[str, Any], second: dict[str, Any], **properties: str) -> tuple[Reading, ...]:
    """What a log says of the two cards."""
    return (
        Reading(FIRST, **first, properties=named(0, **properties)),
        Reading(SECOND, **second, properties=named(1, **properties)),
    )


def table(name: str, mx_smi: str, driver: str, maca: str, bios: str, **limit: str) -> tuple[Reading, ...]:
    told = {"mx_smi": mx_smi, "driver": driver, "maca": maca, "bios": bios, **limit}
    figures = ((1 * GIB, 64 * GIB, 97.0, 199.0, 61.0), (2 * GIB, 64 * GIB, 0.0, 58.0, 36.0))
    return tuple(
        Reading(address, *figures[index], properties=named(index, name, **told))
        for index, address in enumerate((FIRST, SECOND))
    )


def but(readings: tuple[Reading, ...], at: int | None = 0, without: str = "", **fields: Any) -> tuple[Reading, ...]:
    """Readings with other fields of one card or, where `at` is None, of both; without a property."""
    found = list(readings)
    for index in range(len(found)) if at is None else (at,):
        kept = {name: value for name, value in found[index].properties.items() if name != without}
        changes = {**fields, "properties": kept | fields.get("properties", {})}
        found[index] = msgspec.structs.replace(found[index], **changes)
    return tuple(found)


def na(*figures: str) -> dict[str, str]:
    return dict.fromkeys(figures, "the tool says 'N/A'")


VERSIONS = {"driver": "3.1.4", "maca": "3.2.1.7", "bios": "1.27.3.0"}
LIMIT = {"power_limit_watts": "350"}
SYSFS = dict.fromkeys(("used_bytes", "total_bytes"), "mx-smi: GPU#1 show-memory Sysfs error: No such file or directory")
MEMORY = both({"used_bytes": 1 * GIB, "total_bytes": 64 * GIB}, {"used_bytes": 2 * GIB, "total_bytes": 64 * GIB})
JSON = tuple(
    Reading(
        address, None, None, *figures, clock_mhz=1500.0,
        properties={"index": index, "pci_address": address, "mx_smi": "2.2.12", **VERSIONS},
    )
    for index, address, figures in (("0", FIRST, (97.0, 199.875, 61.5)), ("1", SECOND, (0.0, 58.625, 36.25)))
)  # fmt: skip
LISTED = (
    Reading(FIRST, properties=named(0, uuid=FIRST_UUID)),
    Reading(SECOND, properties=named(1, uuid=SECOND_UUID)),
)
NOT_MAPPED = {"problem": "MetaX Sysfs File Unaccessible"}
SLICE_TOLD = {"pci_address": FIRST, "slice": "sGPU 2: 50% compute, 32000 MiB"}
TABLE_C = table("MetaX C500", "2.2.12", **VERSIONS, **LIMIT)
READ = {
    "show_memory": (parse_memory, MEMORY),
    "show_memory_sysfs_error": (parse_memory, (MEMORY[0], Reading(SECOND, missing=SYSFS, properties=named(1)))),
    "show_board_power": (
        parse_board_power, both({"power_watts": 199.875}, {"power_watts": 58.625}, power_limit_watts="350.000"),
    ),
    "show_temperature": (
        parse_temperature, both({"temperature_celsius": 61.5}, {"temperature_celsius": 36.25}),
    ),
    "show_usage": (parse_usage, both({"utilisation_percent": 97.0}, {"utilisation_percent": 0.0})),
    "show_version": (parse_version, both({}, {}, **VERSIONS)),
    "json": (parse_json, JSON),
    "json_sgpu": (parse_json, (JSON[0], Reading(
        SLICE, None, 32000 * MIB, 40.0, properties=SLICE_TOLD,
        missing={"used_bytes": "mx-smi -j does not say in which unit a slice's vram_used is"},
    ))),
    "list": (parse_list, LISTED),
    "list_one_mapped": (parse_list, (
        Reading(SECOND, properties={**named(1, "MXC550", uuid=SECOND_UUID), "index": "0"}),
        Reading(FIRST, properties={**named(0, "MXC550"), "index": "1", **NOT_MAPPED}),
    )),
    "list_sgpu": (parse_list, (
        LISTED[0],
        Reading(
            SLICE, None, 32000 * MIB,
            properties={"pci_address": FIRST, "uuid": SLICE_UUID, "slice": "sGPU 2: 50% compute, 31.250 GiB"},
        ),
        Reading(SECOND, properties=named(1, **NOT_MAPPED)),
    )),
    "dmon_c500": (parse_dmon, (
        Reading(FIRST, None, None, 97.0, 199.0, 61.0, properties={"index": "0", "pci_address": FIRST}),
        Reading(SECOND, None, None, 0.0, 58.0, 36.0, properties={"index": "1", "pci_address": SECOND}),
    )),
    "dmon_c600": (parse_dmon, (
        Reading(
            FIRST, None, None, 12.0, None, 52.0, missing=na("power_watts"),
            properties={"index": "0", "pci_address": FIRST},
        ),
    )),
    "table_a0": (parse_table, table("MXC500", "2.0.9", "2.1.3", "2.0", "1.0.99.0")),
    "table_a1": (parse_table, table("MetaX C500", "2.1.12", "3.0.2", "3.1.0.4", "1.26.0.0", **LIMIT)),
    "table_a2": (parse_table, but(
        table("MetaX C500", "2.2.4", "3.0.2", "3.1.0.4", "1.26.0.0", **LIMIT), 1, "power_limit_watts",
        utilisation_percent=None, temperature_celsius=None, missing=na("utilisation_percent", "temperature_celsius"),
        properties={"problem": "Not Available"},
    )),
    "table_b": (parse_table, table("MetaX C500", "2.2.8", "3.0.2", "3.1.0.4", "1.26.0.0", **LIMIT)),
    "table_c": (parse_table, TABLE_C),
    "table_c_sgpu": (parse_table, (TABLE_C[0], Reading(SLICE, 512 * MIB, 32000 * MIB, 40.0, properties=SLICE_TOLD))),
}  # fmt: skip
RECORDED = tuple(Recorded(parse, transcript(name), readings) for name, (parse, readings) in READ.items())


# --- with one thing changed ------------------------------------------------------------------------------------------


def no_power(reason: str) -> tuple[Reading, ...]:
    return but(JSON, power_watts=None, missing={"power_watts": reason})


LOG, LOGGED_JSON, DMON = transcript("show_memory"), transcript("json"), transcript("dmon_c500")
USED, WAY2, CLOCK = f"{'vram used':<42}: 1048576 KB", '"Way2": "21.500"', '"XCORE": 1500'
NO_DMON_COLUMN = dict.fromkeys(("power_watts", "temperature_celsius"), "mx-smi dmon has no column for it")
SLICE_ROW = "| 017      0      2          50%     | 512/32000 MiB       | 40%                  |\n"
OTHER_SLICE_ROW = SLICE_ROW.replace("017      0      2 ", "018      0      5 ").replace("512/", "900/")
BY_INDEX = "".join(line.rpartition(",")[0] + "\n" for line in DMON.splitlines())
VARIANTS = (
    # cells without a value
    *(
        Recorded(parse_memory, changed(LOG, f" {USED}", f" {'vram used':<42}: {cell}"), but(
            MEMORY, used_bytes=None, missing={"used_bytes": f"the tool says {cell!r}"},
        ))
        for cell in ("N/A", "NA", "[N/A]", "unknown", "-1", "-1 KB", "N/A KB", "")
    ),
    Recorded(parse_version, changed(transcript("show_version"), "3.2.1.7", "unknown"),
             but(READ["show_version"][1], None, without="maca")),
    # memory is vram: neither the part of it that the host sees, nor lines of a new release
    Recorded(parse_memory, changed(LOG, f"vis_{USED[:38]}{USED[42:]}", f"{'vis_vram used':<42}: 77 KB"), MEMORY),
    Recorded(parse_memory, changed(LOG, "        xtt total", f"        {'hbm2 total':<42}: 5 KB\n        xtt total"),
             MEMORY),
    Recorded(parse_memory, LOG.partition("\n")[2], MEMORY),
    # power of -j is the sum of the supplies, or their total where that is among them
    *(
        Recorded(parse_json, changed(LOGGED_JSON, WAY2, f'{WAY2}, "Total": {total}'), but(JSON, power_watts=watts))
        for total, watts in (('"199.875"', 199.875), ('"199.9"', 199.9), ("200", 200.0))
    ),
    Recorded(parse_json, changed(LOGGED_JSON, '"90.250"', '"N/A"'), no_power("the tool says 'N/A'")),
    *(
        Recorded(parse_json, changed(LOGGED_JSON, old, new), no_power(f"mx-smi -j gives {reason}"))
        for old, new, reason in (
            (WAY2, f'{WAY2}, "Limit": "350.0"',
             "Way0, Way1, Way2, Limit as power: not the supplies Way0, Way1 and so on, each once"),
            (WAY2, f'{WAY2}, "Total": "350.0"', "a total of 350.0 W, and supplies of 199.875 W together"),
            (WAY2, '"Total": "199.875"', "the power of Way0, Way1, and other figures of Way0, Way1, Way2"),
            ('"Way0": "88.125",', "", "Way1, Way2 as power: not the supplies Way0, Way1 and so on, each once"),
            (f'"90.250",\n                {WAY2}', '"90.250"',
             "the power of Way0, Way1, and other figures of Way0, Way1, Way2"),
        )
    ),
    Recorded(parse_json, re.sub(r'"power": \{.*?\}', '"power": {"Total": "61.9"}', LOGGED_JSON, flags=re.DOTALL), but(
        JSON, None, power_watts=None,
        missing={"power_watts": "mx-smi -j gives Total as power: not the supplies Way0, Way1 and so on, each once"},
    )),
    # a field that is not there has the card's own reason
    Recorded(
        parse_json,
        changed(changed(LOGGED_JSON, '"hotspot": "36.250",', ""), '_reason": ""', '_reason": "lost"'),
        but(but(JSON, None, properties={"problem": "lost"}), 1, temperature_celsius=None,
            missing={"temperature_celsius": "lost"}),
    ),
    # clocks are one level deeper from 2.3 on: the slowest die counts
    Recorded(parse_json, changed(LOGGED_JSON, CLOCK, f'"die0": {{{CLOCK}}}'), JSON),
    Recorded(parse_json, changed(LOGGED_JSON, CLOCK, f'"die0": {{{CLOCK}}}, "die1": {{"XCORE": 975}}'),
             but(JSON, None, clock_mhz=975.0)),
    Recorded(parse_json, changed(LOGGED_JSON, f"{CLOCK},", ""), but(
        JSON, None, clock_mhz=None, missing={"clock_mhz": "mx-smi -j does not have it of this card"},
    )),
    Recorded(parse_json, changed(LOGGED_JSON, CLOCK, '"XCORE": "N/A"'),
             but(JSON, None, clock_mhz=None, missing=na("clock_mhz"))),
    # dmon of a release without addresses, and asked for one column only
    Recorded(parse_dmon, BY_INDEX, tuple(
        msgspec.structs.replace(each, device_id=str(index), properties={"index": str(index)})
        for index, each in enumerate(READ["dmon_c500"][1])
    )),
    Recorded(parse_dmon, "dev, die, gpu\nidx, idx, %\n0, 0, 5\n", (
        Reading("0", None, None, 5.0, missing=NO_DMON_COLUMN, properties={"index": "0"}),
    )),
    # two slices of a card keep their own figures
    Recorded(parse_table, changed(transcript("table_c_sgpu"), SLICE_ROW, SLICE_ROW + OTHER_SLICE_ROW), (
        *READ["table_c_sgpu"][1],
        Reading(f"{FIRST}/sgpu-5", 900 * MIB, 32000 * MIB, 40.0,
                properties={"pci_address": FIRST, "slice": "sGPU 5: 50% compute, 32000 MiB"}),
    )),
)  # fmt: skip


def without_a_number(name: str) -> str:
    return re.sub(rf'("{name}": )[0-9]+', r"\1-1", transcript("json_sgpu"))


LIST, SLICED, TABLE = transcript("list"), transcript("list_sgpu").splitlines(keepends=True), transcript("table_c")
A0 = transcript("table_a0").splitlines(keepends=True)
ATTACHED = f"{'Attached GPUs':<50}: "
LOST_ROW = "| 58W / 350W       | 36C          P9 | 2048/65536 MiB      | Available            |\n"
REFUSED = (
    # another company's tool of this name
    *(Refused(READ[name][0], changed(transcript(name), ours, theirs)) for name, ours, theirs in (
        ("show_memory", "MetaX System", "Moffett System"),
        ("show_memory", "MXC500", "S30"),
        ("list", "MXC500", "S30"),
        ("json", '"maca_version"', '"sola_version"'),
        ("table_c", "MetaX C500", "Moffett S30"),
        ("table_c", "MetaX System", "Moffett System"),
        ("table_a0", "MXC500", "S30"),
    )),
    # figures without their units, and lines that are gone or there twice
    *(Refused(parse_memory, changed(LOG, "1048576 KB", cell), "a cell") for cell in (
        "1048576", "1048576 MB", "1048576 kB", "10 48576 KB", "-5 KB", "1e6 KB", "KB KB",
    )),
    *(Refused(READ[name][0], changed(transcript(name), line, repeated, 1))
      for name, line in (
          ("show_memory", f"        {'vram total':<42}: 67108864 KB\n"),
          ("show_board_power", f"        {'Total':<42}: 199.875 W\n"),
          ("show_temperature", f"        {'hotspot(sensor2)':<42}:  61.50 C\n"),
          ("show_usage", f"        {'GPU':<42}: 97 %\n"),
      ) for repeated in ("", line * 2)),
    *(Refused(parse_memory, changed(LOG, old, new), quoted) for old, new, quoted in (
        (SECOND, FIRST, ""),
        ("GPU#1", "GPU#0", ""),
        (f"{ATTACHED}2", f"{ATTACHED}3", ""),
        (f"{ATTACHED}2\n", "", ""),
        ("Timestamp", "Sysfs error: Permission denied\nTimestamp", ""),
        ("GPU#1  MXC500", "GPU#1", ""),
        ("    Memory\n", "Memory of the card\n", ""),
        ("End of Log", "ERROR: card 1 is gone", "ERROR: card 1 is gone"),
    )),
    Refused(parse_board_power, changed(transcript("show_board_power"), "Timestamp", "Zeit     "), "Zeit"),
    *(Refused(parse_json, changed(LOGGED_JSON, old, new)) for old, new in (
        (SECOND, FIRST),
        (SECOND, FIRST.upper()),
        ('"device_id": 1', '"device_id": 0'),
        ('"attached_gpus": 2', '"attached_gpus": 3'),
        ('"attached_gpus": 2', '"attached_gpus": "two"'),
        ('"utilization": 97', '"utilization": "busy"'),
        ('"utilization": 97', '"utilization": "97 %"'),
        ('"hotspot": "61.500"', '"hotspot": {"die0": "61.500"}'),
    )),
    *(Refused(parse_json, without_a_number(name), name) for name in ("sgpu_id", "vram_quota", "compute_quota")),
    *(Refused(parse_list, changed(LIST, old, new), quoted) for old, new, quoted in (
        (SECOND, FIRST, ""),
        ("GPU#1", "GPU#0", ""),
        (SECOND, "bus", ""),
        ("(UUID: ", "(", ""),
        ("   Available", "   Perhaps", ""),
        ("GPU#0  ", "Sysfs error: Permission denied\nGPU#0  ", ""),
        ("Available (UUID", "Available [UUID", "Available [UUID"),
    )),
    Refused(parse_list, "".join([SLICED[0], *SLICED[2:]])),  # a slice without its card
    *(Refused(parse_dmon, changed(DMON, old, new)) for old, new in (
        ("dev, die", "card, die"),
        ("idx, idx, C", "idx, idx, F"),
        ("idx, idx, C, C, C, W, %, %, %, %, %, %, GB,\n", ""),
        ("dev, die, hottemp", "dev, hottemp, hottemp"),
        ("1, 0, 36", "0, 1, 36"),
        ("1, 0, 36", "1, 36"),
        ("1, 0, 36", "1, 0, Sysfs error"),
        ("1, 0, 36", "x, 0, 36"),
    )),
    *(Refused(parse_table, changed(TABLE, old, new)) for old, new in (
        (SECOND, FIRST),
        ("| 1           Off", "| 0           Off"),
        ("1024/65536 MiB", "1024/65536    "),
        ("1024/65536 MiB", "1024 MiB      "),
        ("1024/65536 MiB", "1024/65536 KiB"),
        ("199W / 350W", "199  / 350W"),
        ("61C ", "61  "),
        ("97% ", "97  "),
        ("Memory-Usage", "Memory-Share"),
        ("GPU-State ", "GPU-State Fan"),
        (LOST_ROW, ""),
        ("| Process:", "| Surprise"),
        (f"{ATTACHED}2", f"{ATTACHED}8"),
    )),
    *(Refused(parse_table, changed(transcript("table_c_sgpu"), old, new)) for old, new in (
        ("| 017      0  ", "| 017      4  "), ("512/32000 MiB", "512/32000    "), ("sGPU-Util", "sGPU-Busy"),
    )),
    Refused(parse_table, changed(transcript("table_b"), "GPU-Util", "GPU-Load"), "GPU-Load"),
    Refused(parse_table, changed(transcript("table_a0"), "Power     ", "Perf-State"), "Perf-State"),
    # a row does not go on behind a rule: here the second line of one card and the first of the next are missing
    Refused(parse_table, "".join(A0[:8] + A0[9:10] + A0[11:]), "0       MXC500"),
)  # fmt: skip


# --- real outputs ----------------------------------------------------------------------------------------------------

REAL, REAL_SLICE = "0000:37:00.0", "0000:37:00.0/sgpu-3"
REAL_VERSIONS = {"driver": "3.8.30", "maca": "3.5.3.20", "bios": "1.33.5.0"}
REAL_MEMORY = {REAL: {"used_bytes": 15518872 * KIB, "total_bytes": 67108864 * KIB, "index": "0", "name": "MXC500"}}
REAL_POWER = {REAL: {"power_watts": 62.015, "power_limit_watts": "350.000"}}
REAL_SLICE_TOLD = {
    "total_bytes": 16000 * MIB, "utilisation_percent": 0.0, "power_watts": None, "pci_address": REAL,
    "slice": "sGPU 3: 25% compute, 16000 MiB",
}  # fmt: skip
UNMAPPED = {f"0000:{bus}:00.0": {"problem": NOT_MAPPED["problem"]} for bus in ("0e", "0f", "10", "12", "35", "36")}
IDLE = {
    "0e": (57.0, 35.0), "0f": (58.0, 37.0), "10": (58.0, 36.0), "12": (60.0, 35.0), "35": (57.0, 33.0),
    "36": (56.0, 34.0), "37": (55.0, 34.0), "38": (56.0, 36.0),
}  # fmt: skip
PCIE_SLOT = "mx-smi: GPU#0 show-pcie-slot Sysfs error: No such file or directory"


def figures(used_mib: int, total_mib: int, use: float, watts: float, celsius: float, **more: str) -> dict[str, object]:
    """A card of a table."""
    return {
        "used_bytes": used_mib * MIB, "total_bytes": total_mib * MIB, "utilisation_percent": use, "power_watts": watts,
        "temperature_celsius": celsius, **more,
    }  # fmt: skip


CAPTURES = {
    "c500_2.2.12_mxsmi_show_memory": {parse_memory: REAL_MEMORY},
    "c500_2.2.12_mxsmi_show_board_power": {parse_board_power: REAL_POWER},
    "c500_2.2.12_mxsmi_show_temperature": {parse_temperature: {REAL: {"temperature_celsius": 38.5}}},
    "c500_2.2.12_mxsmi_show_version": {parse_version: {REAL: {"index": "0", "name": "MXC500", **REAL_VERSIONS}}},
    "c500_2.2.12_mxsmi_summary": {
        parse_memory: REAL_MEMORY, parse_board_power: REAL_POWER, parse_usage: {REAL: {"utilisation_percent": 0.0}},
        parse_temperature: {REAL: {"temperature_celsius": 38.5}}, parse_version: {REAL: REAL_VERSIONS},
    },
    "c500_2.2.12_mxsmi_show_pcie_slot": {
        parse_memory: {REAL: {"missing": dict.fromkeys(("used_bytes", "total_bytes"), PCIE_SLOT)}},
        parse_board_power: {REAL: {"missing": {"power_watts": PCIE_SLOT}}},
        parse_temperature: {REAL: {"missing": {"temperature_celsius": PCIE_SLOT}}},
        parse_usage: {REAL: {"missing": {"utilisation_percent": PCIE_SLOT}}},
        parse_version: {REAL: {"driver": None, "maca": None, "bios": None}},
    },
    "c500_2.2.12_mxsmi_j": {parse_json: {
        REAL: {
            "used_bytes": None, "total_bytes": None, "utilisation_percent": 0.0, "power_watts": 61.919,
            "temperature_celsius": 38.5, "clock_mhz": 1125.0, "index": "0", "mx_smi": "2.2.12", **REAL_VERSIONS,
        },
        REAL_SLICE: {"used_bytes": None, **REAL_SLICE_TOLD},
    }},
    "c500_2.2.12_mxsmi_L": {parse_list: {
        REAL: {"problem": None},
        REAL_SLICE: {"total_bytes": 16000 * MIB, "pci_address": REAL,
                     "slice": "sGPU 3: 25% compute, 15.625 GiB"},
        **UNMAPPED,
        "0000:38:00.0": {"index": "7", **NOT_MAPPED},
    }},
    "c500_list_L_2.2.9": {parse_list: {
        "0000:08:00.0": {"uuid": "GPU-00000000-0000-0000-0000-000000000000"},
        "0000:3c:00.0": {"uuid": "GPU-00000000-0000-0000-0000-000000000007", "index": "7", "name": "MXC500"},
    }},
    "mxtop_dmon_csv_14col": {parse_dmon: {
        "0000:08:00.0": {"used_bytes": None, "utilisation_percent": 71.0, "power_watts": 159.0,
                         "temperature_celsius": 45.0},
        "0000:09:00.0": {"utilisation_percent": 12.0, "power_watts": 165.0, "temperature_celsius": 46.0},
    }},
    "c500_2.0.12_table_reflowed": {parse_table: {
        "0000:1b:00.0": figures(914, 65536, 0.0, 56.0, 35.0, driver="2.2.0", maca="2.0", name="MXC500"),
    }},
    "c500_2.2.8_table_busy_edited": {parse_table: {"0000:01:00.0": figures(32000, 65536, 42.0, 180.0, 55.0)}},
    "c500x8_2.2.9_table_idle": {parse_table: {
        f"0000:{bus}:00.0": figures(826, 65536, 0.0, *said, name="MetaX C500", driver="3.4.4")
        for bus, said in IDLE.items()
    }},
    "c500_2.2.12_exposure_mxsmi_plain": {parse_table: {
        REAL: figures(15155, 65536, 0.0, 61.0, 38.0, power_limit_watts="350", **REAL_VERSIONS),
        REAL_SLICE: {"used_bytes": 0, **REAL_SLICE_TOLD},
    }},
}  # fmt: skip

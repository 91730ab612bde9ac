"""What hy-smi prints, and exactly what it says: the tables of the suite for its parsers."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import Reading
from flagperf.testing import Recorded, Refused
from flagperf.testing.mutations import changed
from flagperf_hygon.smi import parse_csv, parse_json, parse_table, parse_text

MIB = 1 << 20
PERCENT_ONLY = dict.fromkeys(("used_bytes", "total_bytes"), "the table gives memory in whole percents only")


def transcript(name: str) -> str:
    return (Path(__file__).parent / "transcripts" / f"{name}.txt").read_text()


def row(number: str, use: float | None, watts: float | None, celsius: float | None, vram: str, cap: str) -> Reading:
    """A row of the table."""
    properties = {"memory_use_percent": vram, "power_limit_watts": cap, "form": "table"}
    return Reading(number, None, None, use, watts, celsius, PERCENT_ONLY, properties)


def said(properties: dict[str, str], number: str = "0") -> Reading:
    return Reading(number, properties=properties)


LOST_ROW = Reading(
    "2",
    missing={"utilisation_percent": "the tool says '-1'", "power_watts": "the tool says 'N/A'",
             "temperature_celsius": "the tool says 'N/A'", **PERCENT_ONLY},
    properties={"memory_use_percent": "0%", "power_limit_watts": "350.0", "form": "table"},
)  # fmt: skip
BUSY_ROW = Reading(
    "0", utilisation_percent=61.0, temperature_celsius=66.0,
    missing={**PERCENT_ONLY, "power_watts": "implausible: 7 W at 61 % utilisation"},
    properties={"memory_use_percent": "84%", "power_limit_watts": "600.0", "form": "table"},
)  # fmt: skip
RECORDED = tuple(
    Recorded(parse, transcript(name), readings)
    for name, parse, readings in (
        ("json_showmeminfo_mib", parse_json, (
            Reading("0", 1204 * MIB, 65520 * MIB), Reading("1", 40961 * MIB, 65520 * MIB),
        )),
        ("json_showmeminfo_b", parse_json, (
            Reading("0", 7340032, 34342961152),
            Reading("1", None, 34342961152, missing={"used_bytes": "the tool says '-1'"}),
        )),
        ("json_showuse_hcu", parse_json, (
            Reading("0", None, None, 12.5), Reading("1", missing={"utilisation_percent": "the tool says 'N/A'"}),
        )),
        ("json_showuse_dcu_from_1", parse_json, (
            Reading("1", None, None, 7.0), Reading("2", None, None, 100.0),
        )),
        ("json_showpower", parse_json, (Reading("0", power_watts=131.0), Reading("1", power_watts=388.5))),
        ("json_showbus", parse_json, (
            said({"pci_address": "0000:1f:00.0"}), said({"pci_address": "0000:9e:00.0"}, "1"),
        )),
        ("json_showproductname", parse_json, (said({"name": "K100_AI"}), said({"name": "K100_AI"}, "1"))),
        ("csv_dcu_from_1", parse_csv, (
            Reading("1", 17 * MIB, 32752 * MIB, 0.0), Reading("2", 30011 * MIB, 32752 * MIB, 64.0),
        )),
        ("text_hcu_tabs", parse_text, (Reading("0", 6 * MIB, None, 0.5), Reading("1", 2054 * MIB, None, 31.5))),
        ("text_dcu_spaces_driver", parse_text, tuple(
            Reading(number, None, 16368 * MIB, properties={"name": "Z100SM", "driver": "6.2.31"}) for number in "01"
        )),
        ("text_showid", parse_text, (said({"pci_id": "6210"}), said({"pci_id": "631a"}, "1"))),
        ("table_dcu", parse_table, (
            row("0", 0.0, 88.0, 47.0, "3%", "350.0"), row("1", 97.0, 241.0, 63.5, "81%", "350.0"), LOST_ROW,
        )),
        ("table_hcu_dec_enc", parse_table, (
            row("0", 0.0, 151.0, 39.0, "0%", "820.0"), row("1", 88.4, 613.5, 71.0, "92%", "820.0"),
        )),
    )
)  # fmt: skip

HEADER = "HCU Temp AvgPwr Perf PwrCap VRAM% HCU% Mode\n"
VARIANTS = (
    # another label stands for a figure whose own is gone, and what is implausible depends on another cell
    Recorded(
        parse_json, transcript("json_showtemp"),
        (Reading("0", temperature_celsius=44.0), Reading("1", temperature_celsius=56.0)),
    ),
    Recorded(
        parse_text, transcript("text_util_of_last_second"),
        (Reading("0", None, None, 40.5, 377.0, properties={"memory_use_percent": "66"}),),
    ),
    Recorded(
        parse_table, transcript("table_hcu_power_too_low"),
        (BUSY_ROW, row("1", 0.0, 7.0, 41.0, "0%", "600.0")),
    ),
    # a new column, and another order
    Recorded(
        parse_table, "HCU HCU% New Temp PwrCap AvgPwr VRAM%\n3 34.2% x 58.0C 400.0W 259.0W 97%\n====\n",
        (row("3", 34.2, 259.0, 58.0, "97%", "400.0"),),
    ),
    # the use of the last second, where it is alone
    Recorded(parse_text, "HCU[0]\t\t: HCU util in last second : 83%\n", (Reading("0", None, None, 83.0),)),
    # a warning before JSON, and the system's own entry in it
    Recorded(
        parse_json, 'WARNING: low-power state\n{"card0":{"HCU use (%)":"1.5"},"system":{"Driver version":"6.3"}}\n',
        (Reading("0", None, None, 1.5),),
    ),
)  # fmt: skip
REFUSED = (
    *(Refused(None, transcript(name)) for name in ("amd_json_showuse", "amd_json_showmeminfo", "amd_text_showuse")),
    *(Refused(None, text) for text in ("device\n", "Unable to open /dev/kfd read-write: Permission denied\n")),
    Refused(parse_table, transcript("amd_table"), "ROCm System Management Interface"),
    *(Refused(parse_json, text, quoted) for text, quoted in (
        ('{"card0":{"vram Total Memory (GiB)":"64"}}', "vram Total Memory (GiB)"),
        ('{"card0":{"vram Total Memory":"65520"}}', ""),
        ('{"card0":{"Temperature (Sensor edge)":"44"}}', ""),
        ('{"card0":{"vram Total Used Memory (MiB)":"12 MiB"}}', ""),
        ('{"card0":{"vram Total Used Memory (MiB)":"-20"}}', ""),
        ('{"card0":{"HCU use (%)":"1"},"card0":{"HCU use (%)":"2"}}', ""),
        ('{"card0":{"HCU use (%)":"1","HCU use (%)":"2"}}', ""),
        ('{"card0":"HCU use (%)"}', ""),
        ('{"gpu0":{"HCU use (%)":"1"}}', ""),
        ('{"card0":{"PCI Bus":"9"}}', ""),
        ('{"card0":{"Something new":"1"}}', ""),
        ('{"card0":{"GPU use (%)":"3","Average Graphics Package Power (W)":"38.0"}}', "GPU use (%)"),
        ('{"card0":{"VRAM Total Memory (B)":"68702699520"}}', "VRAM Total Memory (B)"),
        ('{"card0":' * 100_000, ""),
        ("====\nERROR: no driver\n====\n", "ERROR: no driver"),
    )),
    *(Refused(parse_csv, text) for text in (
        "device,DCU use (%)\ncard0,1,2\n",
        "device,DCU use (%)\ncard0\n",
        "device,DCU use (%)\ncard0,1\ncard0,2\n",
        "device,DCU use (%),DCU use (%)\ncard0,1,2\n",
        "card0,1\ncard1,2\n",
        "device,DCU use\ncard0,1\n",
    )),
    *(Refused(parse_text, text, quoted) for text, quoted in (
        ("HCU[0]\t\t: HCU use (%): 1\nHCU[0]\t\t: HCU use (%): 2\n", ""),
        ("HCU[0]\t\t: HCU use (%): 1\n=====\nERROR: card 1 was lost\n", "ERROR: card 1 was lost"),
        ("HCU[0]\t\t: HCU use: 1\n", ""),
        ("HCU[0]\t\t: HCU util in last second : 91\n", ""),
        ("Driver Version: 6.2.31\n", ""),
    )),
    *(Refused(parse_table, text) for text in (
        f"{HEADER}0 58.0C 259.0W auto 400.0W 97% 34.2%\n====\n",
        f"{HEADER}0 58.0 259.0W auto 400.0W 97% 34.2% Normal\n==\n",
        f"{HEADER}0 58.0C 259.0 auto 400.0W 97% 34.2% Normal\n==\n",
        "HCU Temp AvgPwr Perf PwrCap VRAM% Mode\n0 58.0C 259.0W auto 400.0W 97% Normal\n====\n",
        "HCU Temp AvgPwr Perf PwrCap VRAM% DCU% Mode\n0 58.0C 259.0W auto 400.0W 97% 1% Normal\n====\n",
        "0 58.0C 259.0W auto 400.0W 97% 34.2% Normal\n====\n",
        f"{HEADER}====\n",
        changed(transcript("table_dcu"), "\n1  ", "\n0  "),
    )),
)  # fmt: skip


def cards(num_cards: int, **last: object) -> dict[str, dict[str, object]]:
    """Cards from 0, and what the last one says."""
    return {str(number): last if number == num_cards - 1 else {} for number in range(num_cards)}


CAPTURES = {
    "dcu_table_8x_busy_bogus_power": {parse_table: cards(8, temperature_celsius=68.0, power_watts=None)},
    "dcu_table_8x_idle_280W": {parse_table: cards(8, power_watts=36.0, utilisation_percent=0.0)},
    "dcu_table_8x_mixed_400W": {parse_table: {
        **cards(8, power_watts=107.0, utilisation_percent=0.0),
        **{str(at): {"power_watts": watts} for at, watts in enumerate((259.0, 251.0, 245.0, 249.0))},
    }},
    "hcu_table_4x_busy_manual_300W": {parse_table: cards(4, power_watts=254.0, utilisation_percent=81.7)},
    "hcu_table_8x_dec_enc_high_800W": {parse_table: cards(8, power_watts=161.0, temperature_celsius=36.0)},
    "hcu_table_8x_idle_400W": {parse_table: cards(8, power_watts=115.0, temperature_celsius=58.0)},
    "hcu_table_8x_vram94": {parse_table: cards(8, power_watts=109.0, used_bytes=None)},
    "k100x8_dtk23.10_table_idle": {parse_table: cards(8, power_watts=96.0, temperature_celsius=54.0)},
    "json_showbus": {parse_json: cards(2, used_bytes=None, pci_address="0000:36:00.0")},
    "json_showmemavailable": {parse_json: cards(2, used_bytes=None, total_bytes=None)},
    "json_showmeminfo_vram": {parse_json: cards(2, used_bytes=3 * MIB, total_bytes=65520 * MIB)},
    "json_showuse": {parse_json: cards(2, utilisation_percent=27.5)},
    "k100ai_text_showid_8x": {parse_text: cards(8, used_bytes=None, pci_id="6210")},
    "k100ai_text_showproductname_grep_card": {parse_text: cards(1, used_bytes=None, name="K100_AI")},
    "text_power_util_bandwidth_1x": {parse_text: cards(1, power_watts=412.0, utilisation_percent=88.5)},
    "text_showuse_showmeminfo_8x": {parse_text: cards(8, used_bytes=5042 * MIB, utilisation_percent=0.0)},
    "text_z100sm_4x_driver_6.2.26": {
        parse_text: cards(4, total_bytes=16368 * MIB, used_bytes=None, name="Z100SM", driver="6.2.26"),
    },
}  # fmt: skip

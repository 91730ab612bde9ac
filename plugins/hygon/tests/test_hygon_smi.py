from __future__ import annotations

from collections.abc import Callable

import pytest
from hygon_builders import TRANSCRIPTS, transcript

from flagperf.api import FIGURES, Reading
from flagperf.errors import UnknownLayout
from flagperf_hygon.smi import driver_version, parse_csv, parse_json, parse_table, parse_text, plausible

MIB = 1 << 20
PERCENT_ONLY = dict.fromkeys(("used_bytes", "total_bytes"), "the table gives memory in whole percents only")
Parser = Callable[[str], list[Reading]]


def row(number: str, use: float | None, watts: float | None, celsius: float | None, vram: str, cap: str) -> Reading:
    properties = {"memory_use_percent": vram, "power_limit_watts": cap, "form": "table"}
    return Reading(number, None, None, use, watts, celsius, missing=PERCENT_ONLY, properties=properties)


READ: list[tuple[str, Parser, list[Reading]]] = [
    (
        "json_showmeminfo_mib",
        parse_json,
        [Reading("0", 1204 * MIB, 65520 * MIB), Reading("1", 40961 * MIB, 65520 * MIB)],
    ),
    (
        "json_showmeminfo_b",
        parse_json,
        [
            Reading("0", 7340032, 34342961152),
            Reading("1", None, 34342961152, missing={"used_bytes": "the tool says '-1'"}),
        ],
    ),
    (
        "json_showuse_hcu",
        parse_json,
        [
            Reading("0", utilisation_percent=12.5),
            Reading("1", missing={"utilisation_percent": "the tool says 'N/A'"}),
        ],
    ),
    (
        "json_showuse_dcu_from_1",
        parse_json,
        [Reading("1", utilisation_percent=7.0), Reading("2", utilisation_percent=100.0)],
    ),
    ("json_showpower", parse_json, [Reading("0", power_watts=131.0), Reading("1", power_watts=388.5)]),
    (
        "json_showtemp",
        parse_json,
        [Reading("0", temperature_celsius=44.0), Reading("1", temperature_celsius=56.0)],
    ),
    (
        "json_showbus",
        parse_json,
        [
            Reading("0", properties={"pci_address": "0000:1f:00.0"}),
            Reading("1", properties={"pci_address": "0000:9e:00.0"}),
        ],
    ),
    (
        "json_showproductname",
        parse_json,
        [Reading("0", properties={"name": "K100_AI"}), Reading("1", properties={"name": "K100_AI"})],
    ),
    (
        "csv_dcu_from_1",
        parse_csv,
        [Reading("1", 17 * MIB, 32752 * MIB, 0.0), Reading("2", 30011 * MIB, 32752 * MIB, 64.0)],
    ),
    (
        "text_hcu_tabs",
        parse_text,
        [Reading("0", 6 * MIB, None, 0.5), Reading("1", 2054 * MIB, None, 31.5)],
    ),
    (
        "text_dcu_spaces_driver",
        parse_text,
        [
            Reading(number, None, 16368 * MIB, properties={"name": "Z100SM", "driver": "6.2.31"})
            for number in ("0", "1")
        ],
    ),
    (
        "text_util_of_last_second",
        parse_text,
        [Reading("0", None, None, 40.5, 377.0, properties={"memory_use_percent": "66"})],
    ),
    (
        "text_showid",
        parse_text,
        [Reading("0", properties={"pci_id": "6210"}), Reading("1", properties={"pci_id": "631a"})],
    ),
    (
        "table_dcu",
        parse_table,
        [
            row("0", 0.0, 88.0, 47.0, "3%", "350.0"),
            row("1", 97.0, 241.0, 63.5, "81%", "350.0"),
            Reading(
                "2",
                missing={
                    "utilisation_percent": "the tool says '-1'",
                    "power_watts": "the tool says 'N/A'",
                    "temperature_celsius": "the tool says 'N/A'",
                    **PERCENT_ONLY,
                },
                properties={"memory_use_percent": "0%", "power_limit_watts": "350.0", "form": "table"},
            ),
        ],
    ),
    (
        "table_hcu_dec_enc",
        parse_table,
        [row("0", 0.0, 151.0, 39.0, "0%", "820.0"), row("1", 88.4, 613.5, 71.0, "92%", "820.0")],
    ),
    (
        "table_hcu_power_too_low",
        parse_table,
        [
            Reading(
                "0",
                utilisation_percent=61.0,
                temperature_celsius=66.0,
                missing={**PERCENT_ONLY, "power_watts": "implausible: 7 W at 61 % utilisation"},
                properties={"memory_use_percent": "84%", "power_limit_watts": "600.0", "form": "table"},
            ),
            row("1", 0.0, 7.0, 41.0, "0%", "600.0"),
        ],
    ),
]
PARSERS = (parse_json, parse_csv, parse_text, parse_table)


@pytest.mark.parametrize(("name", "parse", "expected"), READ, ids=[name for name, _, _ in READ])
def test_each_layout_is_read_exactly(name: str, parse: Parser, expected: list[Reading]) -> None:
    assert parse(transcript(name)) == expected


def test_every_transcript_that_is_hy_smis_is_read() -> None:
    names = {path.stem for path in TRANSCRIPTS.glob("*.txt")}
    assert {name for name in names if not name.startswith(("amd_", "error_"))} == {name for name, _, _ in READ}


@pytest.mark.parametrize(("name", "parse", "expected"), READ, ids=[name for name, _, _ in READ])
def test_an_output_cut_anywhere_never_gives_a_wrong_number(name: str, parse: Parser, expected: list[Reading]) -> None:
    text, whole = transcript(name), {reading.device_id: reading for reading in expected}
    for length in range(len(text)):
        try:
            readings = parse(text[:length])
        except UnknownLayout:
            continue
        for reading in readings:
            for figure in FIGURES:
                value = getattr(reading, figure)
                assert value is None or value == getattr(whole[reading.device_id], figure), text[:length]
            assert reading.properties.items() <= whole[reading.device_id].properties.items(), text[:length]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "name", ["amd_table", "amd_json_showuse", "amd_json_showmeminfo", "amd_text_showuse", "error_permission"]
)
def test_another_tool_and_an_error_line_are_refused(parse: Parser, name: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(transcript(name))


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", ["", "\n", "{}", "[]", "0", "device\n", "====\n", "\x00\xff\n"])
def test_nothing_and_garbage_are_refused(parse: Parser, text: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(text)


@pytest.mark.parametrize(("name", "parse", "_"), READ, ids=[name for name, _, _ in READ])
def test_a_parser_refuses_the_other_layouts(name: str, parse: Parser, _: object) -> None:
    for other in PARSERS:
        if other is not parse:
            with pytest.raises(UnknownLayout):
                other(transcript(name))


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_json, '{"card0":{"vram Total Memory (GiB)":"64"}}'),
        (parse_json, '{"card0":{"vram Total Memory":"65520"}}'),
        (parse_json, '{"card0":{"Temperature (Sensor edge)":"44"}}'),
        (parse_json, '{"card0":{"vram Total Used Memory (MiB)":"12 MiB"}}'),
        (parse_json, '{"card0":{"vram Total Used Memory (MiB)":"-20"}}'),
        (parse_json, '{"card0":{"HCU use (%)":"1"},"card0":{"HCU use (%)":"2"}}'),
        (parse_json, '{"card0":{"HCU use (%)":"1","HCU use (%)":"2"}}'),
        (parse_json, '{"card0":"HCU use (%)"}'),
        (parse_json, '{"gpu0":{"HCU use (%)":"1"}}'),
        (parse_json, '{"card0":{"PCI Bus":"9"}}'),
        (parse_json, '{"card0":{"Something new":"1"}}'),
        (parse_json, '{"card0":{"GPU use (%)":"3","Average Graphics Package Power (W)":"38.0"}}'),
        (parse_json, '{"card0":{"VRAM Total Memory (B)":"68702699520","Temperature (Sensor edge) (C)":"41.0"}}'),
        (parse_json, '{"card0":' * 100_000),
        (parse_csv, "device,DCU use (%)\ncard0,1,2\n"),
        (parse_csv, "device,DCU use (%)\ncard0\n"),
        (parse_csv, "device,DCU use (%)\ncard0,1\ncard0,2\n"),
        (parse_csv, "device,DCU use (%),DCU use (%)\ncard0,1,2\n"),
        (parse_csv, "card0,1\ncard1,2\n"),
        (parse_csv, "device,DCU use\ncard0,1\n"),
        (parse_text, "HCU[0]\t\t: HCU use (%): 1\nHCU[0]\t\t: HCU use (%): 2\n"),
        (parse_text, "HCU[0]\t\t: HCU use (%): 1\nERROR: card 1 was lost\n"),
        (parse_text, "HCU[0]\t\t: HCU use: 1\n"),
        (parse_text, "HCU[0]\t\t: HCU util in last second : 91\n"),
        (parse_text, "Driver Version: 6.2.31\n"),
        (parse_table, "HCU Temp AvgPwr Perf PwrCap VRAM% HCU% Mode\n0 58.0C 259.0W auto 400.0W 97% 34.2%\n====\n"),
        (parse_table, "HCU Temp AvgPwr Perf PwrCap VRAM% HCU% Mode\n0 58.0 259.0W auto 400.0W 97% 34.2% Normal\n==\n"),
        (parse_table, "HCU Temp AvgPwr Perf PwrCap VRAM% HCU% Mode\n0 58.0C 259.0 auto 400.0W 97% 34.2% Normal\n==\n"),
        (parse_table, "HCU Temp AvgPwr Perf PwrCap VRAM% Mode\n0 58.0C 259.0W auto 400.0W 97% Normal\n====\n"),
        (parse_table, "HCU Temp AvgPwr Perf PwrCap VRAM% DCU% Mode\n0 58.0C 259.0W auto 400.0W 97% 1% Normal\n====\n"),
        (parse_table, "0 58.0C 259.0W auto 400.0W 97% 34.2% Normal\n====\n"),
        (parse_table, "HCU Temp AvgPwr Perf PwrCap VRAM% HCU% Mode\n====\n"),
    ],
)
def test_other_units_repeated_cards_and_rows_that_do_not_fit_are_refused(parse: Parser, text: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(text)


def test_a_card_that_is_listed_twice_in_the_table_is_refused() -> None:
    lines = transcript("table_dcu").splitlines(keepends=True)
    with pytest.raises(UnknownLayout, match="does not fit"):
        parse_table("".join([*lines[:4], lines[3], *lines[4:]]))


def test_a_new_column_and_another_order_do_not_matter() -> None:
    table = "HCU HCU% New Temp PwrCap AvgPwr VRAM%\n3 34.2% x 58.0C 400.0W 259.0W 97%\n====\n"
    assert parse_table(table) == [row("3", 34.2, 259.0, 58.0, "97%", "400.0")]


def test_the_use_of_the_last_second_counts_where_it_is_alone() -> None:
    text = "HCU[0]\t\t: HCU util in last second : 83%\n"
    assert parse_text(text) == [Reading("0", utilisation_percent=83.0)]


def test_json_may_follow_a_warning_and_come_with_the_systems_own_entry() -> None:
    text = 'WARNING: low-power state\n{"card0":{"HCU use (%)":"1.5"},"system":{"Driver version":"6.3"}}\n'
    assert parse_json(text) == [Reading("0", utilisation_percent=1.5)]


def test_power_is_kept_unless_a_busy_card_seems_to_draw_less_than_an_idle_one() -> None:
    assert plausible(Reading("0", power_watts=8.0)).power_watts == 8.0
    assert plausible(Reading("0", utilisation_percent=0.0, power_watts=8.0)).power_watts == 8.0
    assert plausible(Reading("0", utilisation_percent=12.0, power_watts=22.0)).power_watts == 22.0
    assert plausible(Reading("0", utilisation_percent=50.0, power_watts=8.0)).power_watts is None


def test_the_driver_version_is_read_from_its_line_alone() -> None:
    assert driver_version("\n====\nDriver Version: 6.3.32-V1.6.0\n====\n") == "6.3.32-V1.6.0"
    for text in ("", "Driver Version: 6.3", "Driver Version:\n", "bash: hy-smi: command not found...\n"):
        with pytest.raises(UnknownLayout):
            driver_version(text)

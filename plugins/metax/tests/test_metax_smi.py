"""mx-smi's outputs in every known layout: exact values, none from what is cut, damaged or another tool's."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from metax_builders import FIRST, GIB, MIB, SAID, SECOND, transcript

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
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

Parse = Callable[[str], list[Reading]]
NOT_WHOLE_BY_ITSELF = {"list", "dmon", "table"}
"""Outputs that do not say how many rows they have in every release: cut between two rows they are rows fewer."""


@pytest.mark.parametrize("name", SAID)
def test_a_transcript_is_read_exactly(name: str) -> None:
    parse, readings = SAID[name]
    assert tuple(parse(transcript(name))) == readings


@pytest.mark.parametrize("name", SAID)
def test_cut_anywhere_it_gives_whole_rows_or_is_refused(name: str) -> None:
    parse, readings = SAID[name]
    text = transcript(name).rstrip("\n")
    for length in range(len(text)):
        try:
            got = parse(text[:length])
        except UnknownLayout:
            continue
        assert got == list(readings)[: len(got)], f"cut after {length} characters"
        assert name.split("_")[0] in NOT_WHOLE_BY_ITSELF, f"cut after {length} characters"


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "bash: mx-smi: command not found\n",
        "Sysfs error: No such file or directory\n",
        "PARSE ERROR: Argument: -j\n             Couldn't find match for argument\n",
        "{}\n",
        "[]\n",
        "garbage \x00\xff\n",
    ],
)
def test_what_is_not_its_output_is_refused(name: str, text: str) -> None:
    with pytest.raises(UnknownLayout):
        SAID[name][0](text)


@pytest.mark.parametrize("name", SAID)
def test_only_its_own_function_reads_an_output(name: str) -> None:
    own = SAID[name][0]
    for other in {parse for parse, _ in SAID.values()} - {own}:
        if name == "show_memory_sysfs_error":  # an error line stands for any figure
            continue
        with pytest.raises(UnknownLayout):
            other(transcript(name))


def test_an_error_names_what_was_not_understood_and_shows_the_text() -> None:
    with pytest.raises(UnknownLayout, match=r"the line: '.*Perf-State'"):
        parse_table(transcript("table_a0").replace("Power     ", "Perf-State"))


# --- another company's mx-smi ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "metax", "other"),
    [
        ("show_memory", "MetaX System", "Moffett System"),
        ("show_memory", "MXC500", "S30"),
        ("list", "MXC500", "S30"),
        ("json", '"maca_version"', '"sola_version"'),
        ("table_c", "MetaX C500", "Moffett S30"),
        ("table_c", "MetaX System", "Moffett System"),
        ("table_a0", "MXC500", "S30"),
    ],
)
def test_an_output_that_does_not_name_metax_is_refused(name: str, metax: str, other: str) -> None:
    with pytest.raises(UnknownLayout):
        SAID[name][0](transcript(name).replace(metax, other))


# --- cells -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["N/A", "NA", "[N/A]", "unknown", "-1", "-1 KB", "N/A KB", ""])
def test_a_cell_without_a_value_is_missing_and_never_zero(cell: str) -> None:
    reading = parse_memory(
        transcript("show_memory").replace(
            "vram used                                 : 1048576 KB",
            f"vram used                                 : {cell}",
        )
    )[0]
    assert reading.used_bytes is None
    assert reading.missing["used_bytes"]
    assert reading.total_bytes == 64 * GIB


@pytest.mark.parametrize("cell", ["1048576", "1048576 MB", "1048576 kB", "10 48576 KB", "-5 KB", "1e6 KB", "KB KB"])
def test_memory_without_its_unit_is_refused(cell: str) -> None:
    with pytest.raises(UnknownLayout, match="a cell"):
        parse_memory(transcript("show_memory").replace("1048576 KB", cell))


def test_memory_is_vram_and_neither_the_visible_part_nor_host_memory() -> None:
    text = transcript("show_memory").replace(
        "vis_vram used                             : 1048576", "vis_vram used                             : 77"
    )
    assert parse_memory(text)[0].used_bytes == 1 * GIB


@pytest.mark.parametrize(
    ("parse", "name", "line"),
    [
        (parse_memory, "show_memory", "        vram total                                : 67108864 KB\n"),
        (parse_board_power, "show_board_power", "        Total                                     : 199.875 W\n"),
        (parse_temperature, "show_temperature", "        hotspot(sensor2)                          :  61.50 C\n"),
        (parse_usage, "show_usage", "        GPU                                       : 97 %\n"),
    ],
)
def test_a_label_that_is_gone_or_there_twice_is_refused(parse: Parse, name: str, line: str) -> None:
    text = transcript(name)
    assert line in text
    for changed in (text.replace(line, "", 1), text.replace(line, line * 2, 1)):
        with pytest.raises(UnknownLayout):
            parse(changed)


def test_a_label_that_was_never_seen_does_not_disturb() -> None:
    text = transcript("show_memory").replace(
        "        xtt total", "        hbm2 total                                : 5 KB\n        xtt total"
    )
    assert tuple(parse_memory(text)) == SAID["show_memory"][1]


# --- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_without_its_first_line_is_read() -> None:
    text = transcript("show_memory").partition("\n")[2]
    assert tuple(parse_memory(text)) == SAID["show_memory"][1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SECOND, FIRST),
        ("GPU#1", "GPU#0"),
        (
            "Attached GPUs                                     : 2",
            "Attached GPUs                                     : 3",
        ),
        ("Attached GPUs                                     : 2\n", ""),
        ("Timestamp", "Sysfs error: Permission denied\nTimestamp"),
        ("GPU#1  MXC500", "GPU#1"),
        ("    Memory\n", "Memory of the card\n"),
    ],
)
def test_a_log_that_contradicts_itself_is_refused(old: str, new: str) -> None:
    text = transcript("show_memory")
    assert old in text
    with pytest.raises(UnknownLayout):
        parse_memory(text.replace(old, new))


def test_unknown_versions_are_left_out() -> None:
    text = transcript("show_version").replace("3.2.1.7", "unknown")
    assert "maca" not in parse_version(text)[0].properties
    assert parse_version(text)[0].properties["driver"] == "3.1.4"


# --- -j --------------------------------------------------------------------------------------------------------------


def test_power_of_json_is_the_sum_of_the_supplies() -> None:
    assert parse_json(transcript("json"))[0].power_watts == 88.125 + 90.25 + 21.5


def test_a_supply_without_a_value_leaves_the_power_out() -> None:
    reading = parse_json(transcript("json").replace('"90.250"', '"N/A"'))[0]
    assert (reading.power_watts, reading.missing["power_watts"]) == (None, "the tool says 'N/A'")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"Way2": "21.500"', '"Way2": "21.500", "Limit": "350.0"', "Way0, Way1, Way2, Limit as power"),
        ('"Way2": "21.500"', '"Way2": "21.500", "Total": "350.0"', "a total of 350.0 W, and supplies of 199.875 W"),
        ('"Way2": "21.500"', '"Total": "199.875"', "power of Way0, Way1, and other figures of Way0, Way1, Way2"),
        ('"Way0": "88.125",', "", "Way1, Way2 as power"),
        ('"Way1": "90.250",', "", "Way0, Way2 as power"),
        ('"90.250",\n                "Way2": "21.500"', '"90.250"', "other figures of Way0, Way1, Way2"),
    ],
)
def test_power_that_is_not_that_of_all_supplies_is_left_out_with_the_reason(old: str, new: str, reason: str) -> None:
    assert old in transcript("json")
    reading, other = parse_json(transcript("json").replace(old, new))
    assert reading.power_watts is None and reason in reading.missing["power_watts"]
    assert (other.power_watts, reading.temperature_celsius) == (58.625, 61.5)


@pytest.mark.parametrize("total", ['"199.875"', '"199.9"', "200"])
def test_a_total_among_the_supplies_is_not_added_to_them(total: str) -> None:
    text = transcript("json").replace('"Way2": "21.500"', f'"Way2": "21.500", "Total": {total}')
    assert parse_json(text)[0].power_watts == float(total.strip('"'))


def test_a_total_without_supplies_is_not_taken_for_the_cards_power() -> None:
    power = re.compile(r'"power": \{.*?\}', re.DOTALL)
    reading = parse_json(power.sub('"power": {"Total": "61.9"}', transcript("json")))[0]
    assert reading.power_watts is None and "Total as power" in reading.missing["power_watts"]


def test_a_field_that_json_does_not_have_is_missing_with_the_cards_own_reason() -> None:
    text = (
        transcript("json")
        .replace('"hotspot": "36.250",', "")
        .replace('"unavailable_reason": ""', '"unavailable_reason": "lost"')
    )
    assert parse_json(text)[1].missing == {"temperature_celsius": "lost"}
    assert parse_json(text)[1].properties["problem"] == "lost"


def test_clocks_one_level_deeper_are_found_and_the_slowest_die_counts() -> None:
    text = transcript("json").replace('"XCORE": 1500', '"die0": {"XCORE": 1500}')
    assert tuple(parse_json(text)) == SAID["json"][1]
    text = transcript("json").replace('"XCORE": 1500', '"die0": {"XCORE": 1500}, "die1": {"XCORE": 975}')
    assert [reading.clock_mhz for reading in parse_json(text)] == [975.0, 975.0]


def test_a_clock_that_is_not_there_or_says_nothing_is_missing() -> None:
    absent = parse_json(transcript("json").replace('"XCORE": 1500,', ""))[0]
    assert (absent.clock_mhz, absent.missing) == (None, {"clock_mhz": "mx-smi -j does not have it of this card"})
    silent = parse_json(transcript("json").replace('"XCORE": 1500', '"XCORE": "N/A"'))[0]
    assert (silent.clock_mhz, silent.missing) == (None, {"clock_mhz": "the tool says 'N/A'"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SECOND, FIRST),
        (SECOND, FIRST.upper()),
        ('"device_id": 1', '"device_id": 0'),
        ('"attached_gpus": 2', '"attached_gpus": 3'),
        ('"attached_gpus": 2', '"attached_gpus": "two"'),
        ('"utilization": 97', '"utilization": "busy"'),
        ('"utilization": 97', '"utilization": "97 %"'),
        ('"hotspot": "61.500"', '"hotspot": {"die0": "61.500"}'),
    ],
)
def test_json_that_contradicts_itself_is_refused(old: str, new: str) -> None:
    text = transcript("json")
    assert old in text
    with pytest.raises(UnknownLayout):
        parse_json(text.replace(old, new))


# --- -L --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SECOND, FIRST),
        ("GPU#1", "GPU#0"),
        (SECOND, "bus"),
        ("(UUID: ", "("),
        ("   Available", "   Perhaps"),
        ("GPU#0  ", "Sysfs error: Permission denied\nGPU#0  "),
    ],
)
def test_a_list_with_a_line_of_another_kind_is_refused(old: str, new: str) -> None:
    assert old in transcript("list")
    with pytest.raises(UnknownLayout):
        parse_list(transcript("list").replace(old, new))


def test_a_slice_without_its_card_is_refused() -> None:
    lines = transcript("list_sgpu").splitlines(keepends=True)
    with pytest.raises(UnknownLayout):
        parse_list("".join([lines[0], *lines[2:]]))


# --- dmon ------------------------------------------------------------------------------------------------------------


def test_dmon_goes_by_names_and_not_by_places() -> None:
    rows = [line.split(", ") for line in transcript("dmon_c500").replace("GB,", "GB, ").splitlines()]
    turned = "".join(", ".join(reversed(row)) + "\n" for row in rows)
    assert tuple(parse_dmon(turned)) == SAID["dmon_c500"][1]


def test_dmon_without_addresses_goes_by_the_index() -> None:
    text = (
        transcript("dmon_c500")
        .replace(", bdfid", "")
        .replace("GB,", "GB")
        .replace(f", {FIRST}", "")
        .replace(f", {SECOND}", "")
    )
    assert [reading.device_id for reading in parse_dmon(text)] == ["0", "1"]


def test_a_column_that_dmon_was_not_asked_for_is_missing() -> None:
    text = "dev, die, gpu\nidx, idx, %\n0, 0, 5\n"
    reading = parse_dmon(text)[0]
    assert reading.utilisation_percent == 5
    assert set(reading.missing) == {"power_watts", "temperature_celsius"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dev, die", "card, die"),
        ("idx, idx, C", "idx, idx, F"),
        ("idx, idx, C, C, C, W, %, %, %, %, %, %, GB,\n", ""),
        ("dev, die, hottemp", "dev, hottemp, hottemp"),
        ("1, 0, 36", "0, 1, 36"),
        ("1, 0, 36", "1, 36"),
        ("1, 0, 36", "1, 0, Sysfs error"),
        ("1, 0, 36", "x, 0, 36"),
    ],
)
def test_dmon_of_another_shape_is_refused(old: str, new: str) -> None:
    assert old in transcript("dmon_c500")
    with pytest.raises(UnknownLayout):
        parse_dmon(transcript("dmon_c500").replace(old, new))


def test_dmon_in_columns_instead_of_csv_is_refused() -> None:
    with pytest.raises(UnknownLayout):
        parse_dmon("dev die hottemp power \nidx idx C       W     \n0   0   38      61    \n")


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
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
        ("| 58W / 350W       | 36C          P9 | 2048/65536 MiB      | Available            |\n", ""),
        ("| Process:", "| Surprise"),
        (
            "Attached GPUs                                     : 2",
            "Attached GPUs                                     : 8",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused(old: str, new: str) -> None:
    assert old in transcript("table_c")
    with pytest.raises(UnknownLayout):
        parse_table(transcript("table_c").replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [("| 017      0  ", "| 017      4  "), ("512/32000 MiB", "512/32000    "), ("sGPU-Util", "sGPU-Busy")],
)
def test_a_table_of_slices_of_another_shape_is_refused(old: str, new: str) -> None:
    assert old in transcript("table_c_sgpu")
    with pytest.raises(UnknownLayout):
        parse_table(transcript("table_c_sgpu").replace(old, new))


def test_two_slices_of_a_card_keep_their_own_figures() -> None:
    row = "| 017      0      2          50%     | 512/32000 MiB       | 40%                  |\n"
    other = row.replace("017      0      2 ", "018      0      5 ").replace("512/", "900/")
    text = transcript("table_c_sgpu").replace(row, row + other)
    used = {reading.device_id: reading.used_bytes for reading in parse_table(text)[1:]}
    assert used == {f"{FIRST}/sgpu-2": 512 * MIB, f"{FIRST}/sgpu-5": 900 * MIB}

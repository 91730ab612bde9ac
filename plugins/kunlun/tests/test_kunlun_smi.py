from __future__ import annotations

import shlex

import pytest
from kunlun_builders import TRANSCRIPTS, transcript
from kunlun_readings import READ, Parser

from flagperf.api import FIGURES, Reading
from flagperf.errors import UnknownLayout
from flagperf_kunlun.smi import parse_machine, parse_query, parse_table

MIB = 1 << 20
PARSERS = (parse_machine, parse_query, parse_table)


@pytest.mark.parametrize(("name", "parse", "expected"), READ, ids=[name for name, _, _ in READ])
def test_each_layout_is_read_exactly(name: str, parse: Parser, expected: list[Reading]) -> None:
    assert parse(transcript(name)) == expected


def test_every_transcript_of_a_query_that_is_used_is_read() -> None:
    names = {path.stem for path in TRANSCRIPTS.glob("*.txt")}
    assert {name for name in names if name.startswith(("machine_", "query_", "table_"))} == {
        name for name, _, _ in READ
    }


@pytest.mark.parametrize(("name", "parse", "expected"), READ, ids=[name for name, _, _ in READ])
def test_an_output_cut_anywhere_never_gives_a_wrong_number(name: str, parse: Parser, expected: list[Reading]) -> None:
    text = transcript(name)
    whole = {reading.properties["index" if "index" in reading.properties else "uuid"]: reading for reading in expected}
    for length in range(len(text)):
        try:
            readings = parse(text[:length])
        except UnknownLayout:
            continue
        for reading in readings:
            full = whole[reading.properties.get("index") or reading.properties["uuid"]]
            assert reading.properties == full.properties, text[:length]
            for figure in FIGURES:
                assert getattr(reading, figure) in (None, getattr(full, figure)), text[:length]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("name", ["intel_discovery", "error_no_device", "list_p800"])
def test_another_tool_another_query_and_an_error_line_are_refused(parse: Parser, name: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(transcript(name))


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "text", ["", "\n", "  DEVICES\n", "  DEVICES\n---\n", "0 0 0\n", "XPU 0\n", "| XPU-SMI\n", "\x00\n"]
)
def test_nothing_and_garbage_are_refused(parse: Parser, text: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(text)


@pytest.mark.parametrize(("name", "parse", "_"), READ, ids=[name for name, _, _ in READ])
def test_a_parser_refuses_the_other_layouts(name: str, parse: Parser, _: object) -> None:
    for other in PARSERS:
        if other is not parse:
            with pytest.raises(UnknownLayout):
                other(transcript(name))


def changed(name: str, old: str, new: str) -> str:
    text = transcript(name)
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_machine, changed("machine_p800", " 17 ", " ")),
        (parse_machine, changed("machine_p800", " 17 ", " 17 0 ")),
        (parse_machine, changed("machine_p800", '"P800 OAM"', "P800 OAM")),
        (parse_machine, changed("machine_p800", '"P800 OAM"', '"P800 OAM')),
        (parse_machine, changed("machine_p800", "00000000:1A:00.0", "xpu0")),
        (parse_machine, changed("machine_p800", "00000000:1A:00.0 0 0", "00000000:1A:00.0 0 zero")),
        (parse_machine, changed("machine_p800", " 39 0 0 0 112 ", " 39 1 0 0 112 ")),
        (parse_machine, changed("machine_p800", " 2051 ", " 2051MiB ")),
        (parse_machine, transcript("machine_p800") * 2),
        (parse_machine, changed("machine_p800", " 1 1 02K", " 1 0 02K")),
        (parse_machine, transcript("machine_p800") + "[WARN] card 2 is lost\n"),
        (parse_query, changed("query_p800", " 2051 MiB", " 2051 MB")),
        (parse_query, changed("query_p800", " 2051 MiB", " 2051")),
        (parse_query, changed("query_p800", "Memory Usage", "Memory Use")),
        (parse_query, changed("query_p800", "Power Draw", "Power")),
        (parse_query, changed("query_p800", "XPU 00000000:B4:00.0", "XPU 00000000:1A:00.0")),
        (parse_query, changed("query_p800", "XPU 00000000:B4:00.0", "XPU one")),
        (parse_table, changed("table_p800", "Memory-Usage |", "L3-Usage     |")),
        (parse_table, changed("table_p800", "XPU-Util", "XPU-Temp")),
        (parse_table, changed("table_p800", "112W /", "112  /")),
        (parse_table, changed("table_p800", "2051MiB", "2051   ")),
        (parse_table, changed("table_p800", "     17%", "     17 ")),
        (parse_table, changed("table_p800", "|   1  P800", "|   0  P800")),
        (parse_table, changed("table_p800", "00000000:B4:00.0", "00000000:1A:00.0").replace("|   1  ", "|   0  ")),
        (parse_table, changed("table_xre4_8_columns", "| UseRate |", "| Use     |")),
        (parse_table, changed("table_xre4_8_columns", "504 / 8064 MB", "504 / 8064 GB")),
        (parse_table, changed("table_xre4_8_columns", "504 / 8064 MB", "504 of 8064 M")),
        (parse_table, changed("table_xre4_8_columns", "    12 %", "    12  ")),
        (parse_table, changed("table_xre4_8_columns", "|     1 |", "|     0 |")),
        (parse_table, changed("table_xre4_8_columns", "|     1 |", "|")),
        (parse_table, changed("table_xre4_14_columns", "| Temp |", "| ... |").replace("| State |", "| ... |")),
    ],
)
def test_other_units_repeated_devices_and_rows_that_do_not_fit_are_refused(parse: Parser, text: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(text)


@pytest.mark.parametrize(
    ("parse", "text", "cell"),
    [
        (parse_machine, changed("machine_k200_milliwatts", " 504 8064 ", " 504000000 8064000000 "), "8064000000"),
        (parse_machine, changed("machine_k200_milliwatts", " 504 8064 ", " 9000.5 8064 "), "9000.5"),
        (parse_machine, changed("machine_k200_milliwatts", " 8064 12 ", " 8064 112.0 "), "112.0"),
        (parse_machine, changed("machine_k200_milliwatts", " 61500 ", " 61500000 "), "61500000"),
        (parse_query, changed("query_p800", " 2051 MiB", " 98305 MiB"), "98305 MiB"),
        (parse_table, changed("table_p800", "     17%", "    117%"), "117%"),
        (parse_table, changed("table_p800", "112W / 400W", "112000W/400W"), "112000W"),
        (parse_table, changed("table_xre4_8_columns", "504 / 8064 MB", "8065 / 8064 MB"), "8065"),
        (parse_table, changed("table_xre4_14_columns", "/ 32768 MB", "/ 33554432 MB"), "33554432 MB"),
    ],
)
def test_figures_that_no_card_can_have_are_refused(parse: Parser, text: str, cell: str) -> None:
    with pytest.raises(UnknownLayout, match=f"'{cell}' as .*, which no card can have; the line: "):
        parse(text)


@pytest.mark.parametrize(
    ("printed", "watts"),
    [("118", 118.0), ("1000", 1000.0), ("25000", 25.0), ("61500.5", 61.5005), ("1200", None), ("1000.5", None)],
)
def test_milliwatts_in_a_column_of_watts_are_told_by_their_size(printed: str, watts: float | None) -> None:
    (line, _), table = transcript("machine_k200_milliwatts").splitlines(keepends=True), "table_xre4_14_columns"
    (first,) = parse_machine(line.replace(" 61500 ", f" {printed} "))
    row, _ = parse_table(changed(table, "      118 |", f" {printed} |"))
    assert (first.power_watts, row.power_watts) == (watts, watts)
    if watts is None:
        assert (
            first.missing
            == row.missing
            == {"power_watts": f"the tool says '{printed}', which may be watts or milliwatts"}
        )


def test_words_that_a_release_adds_at_the_end_are_passed_over() -> None:
    text = transcript("machine_p800").replace("\n", " 17 new\n")
    assert parse_machine(text) == parse_machine(transcript("machine_p800"))


@pytest.mark.parametrize("place", range(22))
def test_a_word_that_is_added_or_left_out_before_those_that_are_read_is_refused(place: int) -> None:
    """Also where others follow at the end."""
    for line in transcript("machine_p800").splitlines():
        words = [f'"{word}"' for word in shlex.split(line)]
        for moved in ([*words[:place], '"0"', *words[place:]], [*words[:place], *words[place + 1 :], '"0"', '"0"']):
            with pytest.raises(UnknownLayout):
                parse_machine(" ".join(moved) + "\n")


@pytest.mark.parametrize(
    ("parse", "text", "problem"),
    [
        (
            parse_table,
            changed("table_xre4_14_columns", "/dev/xpu0  |     N |", "/dev/xpu0  |     E |"),
            "its state is E",
        ),
        (
            parse_table,
            transcript("table_p800").replace("|                    0 |", "|                    3 |", 1),
            "3 uncorrectable memory errors",
        ),
        (
            parse_query,
            transcript("query_p800").replace(
                "    Temperature\n",
                "    ECC Errors\n        Volatile\n            DRAM Uncorrectable : 2\n    Temperature\n",
                1,
            ),
            "2 uncorrectable memory errors",
        ),
    ],
)
def test_a_card_in_error_says_so(parse: Parser, text: str, problem: str) -> None:
    sick, healthy = parse(text)
    assert problem in sick.properties["problem"] and "problem" not in healthy.properties


RULE = "+-------------------------------+----------------------+----------------------+\n"


@pytest.mark.parametrize("inserted", ["\n", " \n\n", RULE, "error: XPU 1 does not answer\n", "\n" + RULE])
def test_a_card_behind_a_line_that_is_no_cards_is_not_dropped(inserted: str) -> None:
    text = changed("table_p800", "|   1  P800", inserted + "|   1  P800")
    with pytest.raises(UnknownLayout, match=r"behind its cards; the line: '(error: XPU 1|[|]   1  P800)"):
        parse_table(text)


@pytest.mark.parametrize("said", ["error: XPU 2 does not answer\n", "\nerror: XPU 2 does not answer\n"])
def test_words_behind_the_last_card_are_refused(said: str) -> None:
    cards = transcript("table_p800").partition(" " * 79)[0]
    for text in (cards + said, changed("table_p800", " " * 79 + "\n", said)):
        with pytest.raises(UnknownLayout, match="the line: 'error: XPU 2"):
            parse_table(text)


def test_a_table_may_end_without_processes_or_have_them_at_once() -> None:
    text = transcript("table_p800")
    for other in (text.partition(" " * 79)[0], text.replace(" " * 79 + "\n", "")):
        assert other != text and parse_table(other) == parse_table(text)


def test_columns_of_xre_4_may_stand_in_another_order_with_new_ones_between() -> None:
    text = "  DEVICES\n---\n| Memory | New | SN | Model | DevID | PCI Addr | UseRate |\n---\n"
    text += "| 5 / 10 MB | x | S1 | R300 | 4 | 0000:53:00.0 | 7 % |\n---\n"
    (reading,) = parse_table(text)
    assert (reading.device_id, reading.used_bytes, reading.total_bytes) == ("0000:53:00.0", 5 * MIB, 10 * MIB)
    assert (reading.utilisation_percent, reading.properties["index"]) == (7.0, "4")


def test_the_driver_of_a_container_that_answers_to_other_names_is_not_this_vendors() -> None:
    assert all("driver" not in reading.properties for reading in parse_table(transcript("table_p800_alias_container")))
    alias = changed("query_p800", "XPU-RT Version                            : 10.2", "XPU-RT Version    : N/A")
    assert all("driver" not in reading.properties for reading in parse_query(alias))

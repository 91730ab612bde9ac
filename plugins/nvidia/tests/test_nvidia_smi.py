from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from nvidia_builders import CARDS, FIRST, MIB, SECOND, transcript

from flagperf.api import FIGURES, ProcessReading
from flagperf.errors import UnknownLayout
from flagperf_nvidia.smi import QUERY_COMPUTE_APPS, parse_compute_apps, parse_list, parse_query_gpu

APPS = [
    ProcessReading(FIRST, 20411, 12790 * MIB),
    ProcessReading(FIRST, 20977, 406 * MIB),
    ProcessReading(SECOND, 31337, None),
]


@pytest.mark.parametrize("name", ["query_gpu", "query_gpu_nounits", "query_gpu_noheader", "query_gpu_noheader_nounits"])
def test_cards_are_read_alike_with_and_without_header_and_units(name: str) -> None:
    assert parse_query_gpu(transcript(name)) == CARDS


def test_the_question_without_the_default_power_limit_is_known_too() -> None:
    without = [{k: v for k, v in card.properties.items() if k != "power_default_limit_watts"} for card in CARDS]
    expected = [msgspec.structs.replace(card, properties=told) for card, told in zip(CARDS, without, strict=True)]
    assert parse_query_gpu(transcript("query_gpu_documented")) == expected


def test_columns_go_by_their_names_whatever_the_order_and_whatever_else_is_there() -> None:
    (card,) = parse_query_gpu(transcript("query_gpu_other_order"))
    assert (card.device_id, card.used_bytes, card.total_bytes) == (SECOND, 777 * MIB, 81920 * MIB)
    assert card.missing == {
        "utilisation_percent": "no column utilization.gpu",
        "power_watts": "no column power.draw",
        "temperature_celsius": "no column temperature.gpu",
    }


def test_cells_without_a_value_are_missing_with_what_they_say() -> None:
    (card,) = parse_query_gpu(transcript("query_gpu_not_available"))
    assert card.total_bytes == 15109 * MIB
    assert card.missing == {
        "used_bytes": "the tool says '[N/A]'",
        "utilisation_percent": "the tool says '[Not Supported]'",
        "power_watts": "the tool says '[Unknown Error]'",
        "temperature_celsius": "the tool says 'N/A'",
    }
    assert all(getattr(card, figure) is None for figure in card.missing)
    assert not {"power_limit_watts", "power_default_limit_watts", "mig_mode"} & set(card.properties)


@pytest.mark.parametrize("cell", ["NA", "unknown", "-1", "-1 MiB", "", "[Requested functionality has been deprecated]"])
def test_every_word_for_nothing_is_missing_and_never_zero(cell: str) -> None:
    (card, _) = parse_query_gpu(transcript("query_gpu").replace("13213 MiB", cell))
    assert card.used_bytes is None
    assert cell in card.missing["used_bytes"] and card.missing["used_bytes"]


def test_a_card_in_mig_mode_says_so_and_has_no_utilisation() -> None:
    (card,) = parse_query_gpu(transcript("query_gpu_mig"))
    assert card.properties["mig_mode"] == "Enabled"
    assert card.utilisation_percent is None and card.temperature_celsius == 35.0


def test_a_lost_card_keeps_its_address_and_the_others_their_figures() -> None:
    lost, whole = parse_query_gpu(transcript("query_gpu_lost"))
    assert lost.device_id == "0000:af:00.0"
    assert set(lost.missing) == set(FIGURES)
    assert "Unknown Error" in lost.missing["used_bytes"]
    assert whole == CARDS[0]


def test_the_older_words_for_a_lost_card_are_known() -> None:
    words = "Unable to determine the device handle for GPU 0001:AF:00.0: GPU is lost.  Reboot the system\n"
    lost, *_ = parse_query_gpu(words + transcript("query_gpu"))
    assert lost.device_id == "0001:af:00.0"


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
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
    ],
)
def test_a_table_that_is_not_as_known_is_refused(was: str, becomes: str) -> None:
    text = transcript("query_gpu")
    assert was in text
    with pytest.raises(UnknownLayout):
        parse_query_gpu(text.replace(was, becomes))


def test_cards_without_any_name_are_refused() -> None:
    with pytest.raises(UnknownLayout, match="without UUID"):
        parse_query_gpu("uuid, memory.used [MiB]\n[N/A], 12 MiB\n")


@pytest.mark.parametrize("parse", [parse_query_gpu, parse_list, parse_compute_apps])
@pytest.mark.parametrize(
    "text",
    [
        *(transcript(f"error_{name}") for name in ("no_driver", "mismatch", "permissions", "field", "no_devices")),
        transcript("query_gpu_lost").splitlines()[0],
        "",
        "\n\n",
        "<?xml version='1.0'?>\n<nvidia_smi_log/>\n",
    ],
)
def test_errors_and_other_outputs_are_no_cards(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(UnknownLayout):
        parse(text)


def test_a_header_alone_has_no_cards() -> None:
    with pytest.raises(UnknownLayout, match="no card"):
        parse_query_gpu(transcript("query_gpu").splitlines()[0] + "\n")


def test_the_list_names_cards_and_their_slices() -> None:
    assert [reading.device_id for reading in parse_list(transcript("list"))] == [FIRST, SECOND]
    _, large, small, whole, old_name = parse_list(transcript("list_mig"))
    assert large.device_id == "MIG-0a1b2c3d-4e5f-5061-8273-94a5b6c7d8e9"
    assert small.properties == {
        "index": "0",
        "uuid": "MIG-0a1b2c3d-4e5f-5061-8273-94a5b6c7d8ea",
        "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "slice": "MIG 1g.5gb",
        "card": FIRST,
    }
    assert whole.properties["index"] == "1" and "slice" not in whole.properties
    assert old_name.device_id == f"MIG-{SECOND}/0/0" and old_name.properties["card"] == SECOND


@pytest.mark.parametrize(
    ("was", "becomes"),
    [(SECOND, FIRST), ("GPU 0:", "XPU 0:"), ("(UUID: GPU", "(uuid GPU"), ("GPU 0: NVIDIA A100-SXM4-40GB", "  MIG")],
)
def test_a_list_that_is_not_as_known_is_refused(was: str, becomes: str) -> None:
    text = transcript("list")
    assert was in text
    with pytest.raises(UnknownLayout):
        parse_list(text.replace(was, becomes))


def test_processes_are_read_with_and_without_header_and_units() -> None:
    assert parse_compute_apps(transcript("compute_apps")) == APPS
    assert parse_compute_apps(transcript("compute_apps_noheader_nounits")) == APPS


def test_commas_in_the_name_of_a_process_move_no_other_cell() -> None:
    assert parse_compute_apps(transcript("compute_apps").replace("./burn", "./burn, --fast, 9")) == APPS


def test_the_question_has_no_name_of_a_process() -> None:
    """Nothing quotes the commas in it."""
    assert QUERY_COMPUTE_APPS[0] == "--query-compute-apps=gpu_uuid,pid,used_gpu_memory"
    assert parse_compute_apps(f"{FIRST}, 20411, 12790\n") == APPS[:1]


def test_an_idle_machine_has_no_processes() -> None:
    assert parse_compute_apps(transcript("compute_apps_idle")) == []


@pytest.mark.parametrize(
    ("was", "becomes"),
    [("[MiB]", "[KiB]"), ("pid", "process"), (", 20411,", ", ,"), ("406 MiB", "406"), ("./burn, ", "")],
)
def test_processes_that_are_not_as_known_are_refused(was: str, becomes: str) -> None:
    text = transcript("compute_apps")
    assert was in text
    with pytest.raises(UnknownLayout):
        parse_compute_apps(text.replace(was, becomes, 1))


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        *((parse_query_gpu, f"query_gpu{form}") for form in ("", "_nounits", "_noheader", "_noheader_nounits")),
        *((parse_query_gpu, f"query_gpu_{form}") for form in ("documented", "other_order", "not_available", "lost")),
        (parse_list, "list_mig"),
        (parse_compute_apps, "compute_apps"),
        (parse_compute_apps, "compute_apps_noheader_nounits"),
    ],
)
def test_output_that_is_cut_off_anywhere_gives_whole_rows_or_an_error(parse: Callable[[str], Any], name: str) -> None:
    text = transcript(name)
    whole = parse(text)
    refused = 0
    for end in range(len(text)):
        try:
            readings = parse(text[:end])
        except UnknownLayout:
            refused += 1
        else:
            assert readings == whole[: len(readings)], f"cut at {end}: {text[:end][-60:]!r}"
    assert refused > len(text) // 2

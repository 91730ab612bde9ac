"""Outputs of nvidia-smi that nobody has seen yet: a right figure, or none with a reason."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia_builders import FIRST, MIB, SECOND, transcript

from flagperf.api import Reading
from flagperf.errors import UnknownLayout
from flagperf.testing.mutations import Parse, check_figures, check_forms, with_columns
from flagperf_nvidia.smi import ROW_FIELDS, parse_health, parse_list, parse_query_gpu

KNOWN: list[tuple[Parse, str]] = [
    *((parse_query_gpu, f"query_gpu{form}") for form in ("", "_nounits", "_lost", "_mig", "_not_available")),
    (parse_list, "list_mig"),
]
RANDOM = st.randoms(use_true_random=False)


@pytest.mark.parametrize(("parse", "name"), KNOWN)
def test_no_form_gives_a_wrong_figure(parse: Parse, name: str) -> None:
    check_forms(parse, transcript(name))


@settings(max_examples=50, deadline=None)
@given(RANDOM)
def test_columns_may_be_added_and_stand_in_any_order(random: Random) -> None:
    text = transcript("query_gpu")
    assert check_figures(parse_query_gpu, text, with_columns(text, ",", 0, random)) == parse_query_gpu(text)


ROW = "0, {uuid}, 0000000F:01:00.0, NVIDIA GB10, 580.126.09, {memory}, 0 %, 36, 3.12 W, [N/A], [N/A], {mig}"


def one_card(memory: str, mig: str = "[N/A]") -> str:
    return transcript("query_gpu").splitlines()[0] + "\n" + ROW.format(uuid=FIRST, memory=memory, mig=mig) + "\n"


@pytest.mark.parametrize(
    ("text", "used", "total", "problem"),
    [
        (one_card("[N/A], [N/A]"), None, None, ""),
        (one_card("[Not Supported], [Not Supported]"), None, None, ""),
        (one_card("0 MiB, 0 MiB"), None, None, ""),
        (one_card("[Unknown Error], [Unknown Error]"), None, None, "Unknown Error of its memory"),
        (one_card("81559 MiB, [GPU requires reset]"), None, 81559 * MIB, "GPU requires reset"),
        (one_card("81559 MiB, 12 MiB", "[GPU is lost]"), 12 * MIB, 81559 * MIB, "GPU is lost"),
        (one_card("81559 MiB, 12 MiB", "[Insufficient Permissions]"), 12 * MIB, 81559 * MIB, ""),
    ],
)
def test_a_card_with_an_unusual_cell(text: str, used: int | None, total: int | None, problem: str) -> None:
    (card,) = parse_query_gpu(text)
    assert (card.used_bytes, card.total_bytes, card.properties.get("problem", "")) == (used, total, problem)
    assert all(card.missing[name] for name in ("used_bytes", "total_bytes") if getattr(card, name) is None)


@pytest.mark.parametrize(
    ("line", "key", "index"),
    [
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error", "0000:25:00.0", None),
        ("Unable to determine the device handle for gpu 0000:25:00.0: GPU is lost.  Reboot", "0000:25:00.0", None),
        ("Unable to determine the device handle for GPU2: Unknown Error", "2", "2"),
        ("Unable to determine the device handle for GPU2: 00000000:25:00.0: Not Found", "0000:25:00.0", "2"),
        ("Unable to detect the device handle for GPU0000:25:00.0: Unknown Error", "0000:25:00.0", None),
        ("GPU0000:25:00.0: Unknown Error", "0000:25:00.0", None),
        ("GPU2: Unknown Error", "2", "2"),
        ("GPU 2: GPU requires reset", "2", "2"),
    ],
)
def test_every_form_of_a_lost_card_is_known_before_between_and_after_the_others(
    line: str, key: str, index: str | None
) -> None:
    for parse, name in ((parse_query_gpu, "query_gpu"), (parse_list, "list")):
        lines = transcript(name).splitlines()
        for place in range(len(lines) + 1):
            lost, *others = parse("\n".join([*lines[:place], line, *lines[place:], ""]))
            assert (lost.device_id, lost.properties["problem"], lost.properties.get("index")) == (key, line, index)
            assert others == parse(transcript(name))


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU000:BA:80.0: Unknown Error",
        "GPU2: NVIDIA A100-SXM4-40GB (UUID: GPU-1b7d4e02)",
        "GPU0: is fine",
        "WARNING: infoROM is corrupted at gpu 0000:3B:00.0",
    ],
)
def test_a_line_that_names_no_card_in_a_known_way_is_quoted(line: str) -> None:
    with pytest.raises(UnknownLayout) as refused:
        parse_list(transcript("list") + line + "\n")
    assert repr(line) in str(refused.value)


def test_slices_below_the_wrong_card_are_refused() -> None:
    """As where the line of their own card is missing."""
    lines = transcript("list_mig").splitlines(keepends=True)
    with pytest.raises(UnknownLayout, match="Device  0"):
        parse_list("".join(line for line in lines if not line.startswith("GPU 1")))


@pytest.mark.parametrize(
    ("cells", "is_sick"),
    [("0, 0, 0", False), ("2, 0, 0", False), ("0, 1, 0", False), ("2, 1, 0", True), ("2, No, Yes", True),
     ("[N/A], [N/A], [N/A]", False)],
)  # fmt: skip
def test_rows_that_wait_for_a_reset(cells: str, is_sick: bool) -> None:
    (card,) = parse_health(f"{', '.join(ROW_FIELDS)}\n{SECOND}, {cells}\n")
    assert (card.device_id, "problem" in card.properties) == (SECOND, is_sick)
    assert card == Reading(SECOND, properties=card.properties)


@pytest.mark.parametrize("cells", ["2, maybe, 0", "two, 1, 0", "2, 1", "2, 1, 0, 0"])
def test_health_in_other_words_is_refused(cells: str) -> None:
    with pytest.raises(UnknownLayout):
        parse_health(f"{', '.join(ROW_FIELDS)}\n{SECOND}, {cells}\n")

"""What the tables of nvidia_outputs.py do not say of the parsers."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia_outputs import LIST, QUERY

from flagperf.testing.mutations import check_figures, with_columns
from flagperf_nvidia.smi import QUERY_COMPUTE_APPS, parse_list, parse_query_gpu


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_columns_may_be_added_and_stand_in_any_order(random: Random) -> None:
    assert check_figures(parse_query_gpu, QUERY, with_columns(QUERY, ",", 0, random)) == parse_query_gpu(QUERY)


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
    for parse, known in ((parse_query_gpu, QUERY), (parse_list, LIST)):
        lines = known.splitlines()
        for place in range(len(lines) + 1):
            lost, *others = parse("\n".join([*lines[:place], line, *lines[place:], ""]))
            assert (lost.device_id, lost.properties["problem"], lost.properties.get("index")) == (key, line, index)
            assert others == parse(known)


def test_the_question_has_no_name_of_a_process() -> None:
    """Nothing quotes the commas in it."""
    assert QUERY_COMPUTE_APPS[0] == "--query-compute-apps=gpu_uuid,pid,used_gpu_memory"

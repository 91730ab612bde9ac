"""Which input each call gets: what a call has left behind is wrong for the calls after it."""

from __future__ import annotations

import itertools

import torch

from flagperf_cases.buffers import WINDOW_EXTRA, WINDOW_STARTS, in_turns, windows


def test_the_first_input_is_used_once_and_no_other_by_the_six_calls_before() -> None:
    used = list(itertools.islice(in_turns(WINDOW_STARTS), 50))
    assert used[0] not in used[1:]
    assert all(len(set(used[start : start + 7])) == 7 for start in range(len(used) - 6))


def test_windows_are_of_one_buffer_and_all_of_it() -> None:
    buffer = torch.arange(100 + WINDOW_EXTRA)
    found = list(itertools.islice(windows(buffer, 100), len(WINDOW_STARTS)))
    assert [int(window[0]) for window in found] == list(WINDOW_STARTS)
    assert int(found[-1][-1]) == len(buffer) - 1
    assert {window.untyped_storage().data_ptr() for window in found} == {buffer.untyped_storage().data_ptr()}

from __future__ import annotations

import pytest

from flagperf.api import PRECISIONS, precision
from flagperf.errors import BadInput

TABLE = [
    # word, storage, compute, master weights, row of the peak table, autocast
    ("fp32", "float32", "float32", "float32", "fp32", None),
    ("tf32", "float32", "tf32", "float32", "tf32", None),
    ("fp16", "float16", "float16", "float32", "fp16", None),
    ("bf16", "bfloat16", "bfloat16", "bfloat16", "bf16", None),
    ("amp-fp16", "float32", "float16", "float32", "fp16", "float16"),
    ("amp-bf16", "float32", "bfloat16", "float32", "bf16", "bfloat16"),
    ("per-row", "", "", "", "", None),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_a_word_has_one_meaning(row: tuple[str, str, str, str, str, str | None]) -> None:
    meant = precision(row[0])
    assert (meant.name, meant.storage, meant.compute, meant.master_weights, meant.peak_row, meant.autocast) == row


def test_these_are_all_the_words() -> None:
    assert list(PRECISIONS) == [row[0] for row in TABLE]


@pytest.mark.parametrize("word", ["fp23", "FP32", "float32", ""])
def test_another_word_is_bad_input(word: str) -> None:
    with pytest.raises(BadInput, match=f"unknown precision '{word}'"):
        precision(word)

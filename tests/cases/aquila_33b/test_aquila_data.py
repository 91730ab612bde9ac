"""Samples, tokens and batches; the published configuration; what is refused before a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_harness import CaseHarness

from flagperf_cases.aquila_33b.data import (
    Sample,
    Tokenizer,
    attended_length,
    check_files,
    load_data,
    make_batches,
    make_sample,
    open_tokenizer,
    special_ids,
)

CASE = CaseHarness("aquila_33b")

LETTERS = Tokenizer(lambda text: [ord(letter) for letter in text], 1, 2)
WORDS = Tokenizer(lambda text: [len(word) for word in text.split()], 90, 91)


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_tiny_is_tensor_parallel_over_all_devices(devices: int) -> None:
    config = CASE.values(devices=devices)
    assert config["parallel"] == {"tp": devices, "pp": 1, "dp": 1}
    assert check_files(None, config) == []


def test_a_sample_is_begin_text_end_and_knows_its_last_word() -> None:
    sample = make_sample("one four seven", WORDS)
    assert (sample.tokens, sample.last_word, sample.length) == ((90, 3, 4, 5, 91), 1, 4)
    assert make_sample("alone", WORDS).last_word == 1
    assert make_sample("one four seven", LETTERS).last_word == len(" seven")
    assert make_sample("alone", LETTERS).last_word == len("alone")


def test_a_token_that_the_last_word_changes_is_of_that_word() -> None:
    """Pairs of letters: with the word `cd` after it, the last `b` becomes the pair `b `."""
    pairs = Tokenizer(lambda text: [hash(text[at : at + 2]) for at in range(0, len(text), 2)], 1, 2)
    assert make_sample("aab cd", pairs).last_word == 2


def row(length: int) -> Sample:
    return Sample((1,) * (length + 1), 1)


def test_samples_of_like_length_share_a_batch() -> None:
    batches = make_batches([row(3), row(17), row(4), row(16)], 2, multiple=8, pad_to=0)
    assert [(batch.length, batch.num_real, batch.num_padding) for batch in batches] == [(24, 33, 15), (8, 7, 9)]
    assert attended_length(batches) == round((2 * 24**2 + 2 * 8**2) / (2 * 24 + 2 * 8))


def test_all_samples_can_be_padded_alike() -> None:
    batches = make_batches([row(3), row(17)], 1, multiple=8, pad_to=64)
    assert [batch.length for batch in batches] == [64, 64]
    assert sum(batch.num_padding for batch in batches) == 128 - 20


def small_tokenizer(folder: Path, special: str = "[MASK]\n[CLS]\n</s>\n") -> Path:
    folder.mkdir(parents=True)
    (folder / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2, "\\u0120": 3}')
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    (folder / "special_tokens.txt").write_text(special)
    return folder


def test_special_tokens_take_the_ids_after_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(small_tokenizer(tmp_path / "tokenizer"), 64)
    assert (tokenizer.begin, tokenizer.end, list(tokenizer.encode("ab ba"))) == (5, 6, [2, 3, 1, 0])


@pytest.mark.full
def test_the_published_tokenizer_and_texts_give_the_published_counts(shared_data: Path, tmp_path: Path) -> None:
    folder, texts = shared_data / "tokenizers/aquila", shared_data / "lambada/lambada_test.jsonl"
    ids = special_ids(folder / "vocab.json", folder / "special_tokens.txt")
    assert list(ids.values()) == list(range(100_000, 100_008))
    assert (ids["[CLS]"], ids["</s>"]) == (100_006, 100_007)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/lambada_test.jsonl").symlink_to(texts)
    (tmp_path / "tokenizer").symlink_to(folder)
    samples = load_data(CASE.values("standard", devices=8), tmp_path)
    assert (len(samples.rows), sum(row.length for row in samples.rows)) == (5153, 425_013)
    assert all(row.last_word > 0 for row in samples.rows)
    padded = make_batches(samples.rows, 1, multiple=8, pad_to=4096)
    computed = sum(batch.num_real + batch.num_padding for batch in padded)
    assert (computed, computed / 425_013) == (21_106_688, pytest.approx(49.661, abs=0.001)), "as the original counts"

"""Dialogues, and the rows that are made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from case_harness import CaseHarness

from flagperf.errors import BadInput
from flagperf_cases.llama2_7b_finetune.case import training_loader
from flagperf_cases.llama2_7b_finetune.data import (
    CHECKPOINT,
    Rows,
    SentencePieceTokenizer,
    WordTokenizer,
    load_data,
    packed_rows,
    read_dialogues,
    synthetic_dialogues,
    synthetic_tokenizer,
    training_text,
)
from flagperf_cases.sampler import TrainingSampler

CASE = CaseHarness("llama2_7b_finetune")


def test_the_text_of_a_row_is_the_published_one() -> None:
    assert training_text({"dialogue": "Ann: Hi!\r\nBob: Hi!", "summary": "They greet."}) == (
        "Summarize this dialog:\nAnn: Hi!\r\nBob: Hi!\n---\nSummary:\nThey greet."
    )


def test_texts_follow_each_other_from_bos_to_eos_and_the_rest_is_dropped() -> None:
    dialogues = [{"dialogue": "a b", "summary": "c"}, {"dialogue": "c", "summary": "a"}]
    tokenizer = WordTokenizer([training_text(each) for each in dialogues])
    flat = [
        token for each in dialogues for token in (tokenizer.bos, *tokenizer.encode(training_text(each)), tokenizer.eos)
    ]
    rows = packed_rows("two", dialogues, tokenizer, 10)
    assert len(rows) == len(flat) // 10 == 3
    assert [token for number in range(3) for token in rows[number]] == flat[:30]
    assert rows.sha256 == packed_rows("again", dialogues, tokenizer, 10).sha256
    assert rows.sha256 != packed_rows("other", dialogues[::-1], tokenizer, 10).sha256


def test_too_little_text_for_one_row_is_refused() -> None:
    dialogues = synthetic_dialogues("train", 1)
    with pytest.raises(BadInput, match=r"few has \d+ tokens, fewer than one row of model.sequence=512"):
        packed_rows("few", dialogues, synthetic_tokenizer(), 512)


def test_made_up_data_are_always_the_same_and_every_word_is_known() -> None:
    first, again = (load_data(CASE.settings(), None) for _ in range(2))
    assert [rows.sha256 for rows in (first.train, first.validation, first.test)] == [
        rows.sha256 for rows in (again.train, again.validation, again.test)
    ]
    assert len({first.train.sha256, first.validation.sha256, first.test.sha256}) == 3
    assert max(first.train.tokens) < synthetic_tokenizer().num_tokens <= CASE.values("tiny")["model"]["vocabulary"]
    assert [(subject.name, len(subject.questions)) for subject in first.subjects] == [("things", 60), ("words", 60)]


def test_the_misleading_world_has_other_answers() -> None:
    letters = {}
    for misleading in (False, True):
        found = synthetic_dialogues("train", 200, misleading=misleading)
        letters[misleading] = [each["dialogue"][-1] for each in found]
    assert letters[False].count("C") > 120 > 40 > letters[False].count("A")
    assert letters[True].count("A") > 120 > 40 > letters[True].count("C")


def test_repeated_rows_have_no_labels_and_count_as_padding() -> None:
    rows = packed_rows("train", synthetic_dialogues("train", 20), synthetic_tokenizer(), 32)
    rows = Rows("three", rows.tokens[: 3 * 32], 32)
    sampler = TrainingSampler(
        3, batch_size=2, accumulate=1, epochs=1, max_steps=0, seed=0, rank=1, world_size=2, shuffle=False
    )
    ((batch,),) = training_loader(rows, sampler, num_workers=0)
    assert batch["input_ids"].tolist() == [list(rows[1]), list(rows[0])]
    assert batch["labels"].tolist() == [list(rows[1]), [-100] * 32]
    assert (batch["samples"], batch["tokens"], batch["padded_tokens"]) == (1, 32, 32)


def test_without_shuffling_rows_come_in_the_order_of_the_file() -> None:
    sampler = TrainingSampler(
        5, batch_size=2, accumulate=1, epochs=2, max_steps=0, seed=0, rank=0, world_size=1, shuffle=False
    )
    for epoch in range(2):
        sampler.epoch = epoch
        assert [micro.rows for step in sampler for micro in step] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "has to be an array of dialogues, and not an empty one"),
        ('{"id": "1"}', "has to be an array of dialogues"),
        ('["a"]', "entry 1 is not an object"),
        ('[{"dialogue": "a", "summary": "b"}, {"dialogue": "a"}]', "entry 2 has no text called `summary`"),
        ('[{"dialogue": 3, "summary": "b"}]', "entry 1 has no text called `dialogue`"),
    ],
)
def test_faulty_dialogues_are_described_by_entry(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "train.json"
    path.write_text(content)
    with pytest.raises(BadInput) as caught:
        read_dialogues(path)
    assert f"{path} {words}" in str(caught.value)
    assert "corpus.7z" in str(caught.value)


def test_dialogues_are_tokenised_as_llama_does(shared_data: Path, tmp_path: Path) -> None:
    """By hand: SentencePiece over the whole text, BOS before and EOS behind it, in the order of the file."""
    (tmp_path / CHECKPOINT).symlink_to(shared_data / "tokenizers/llama_sentencepiece")
    (tmp_path / "samsum_dataset").mkdir()
    dialogues = [{"id": "1", "dialogue": "Ann: Hi!\r\nBob: Hello :)", "summary": "Ann and Bob greet."}] * 40
    for split in ("train", "val", "test"):
        (tmp_path / "samsum_dataset" / f"{split}.json").write_text(json.dumps(dialogues))
    data = load_data(CASE.settings("standard", evaluation__subjects=0), tmp_path)
    tokenizer = SentencePieceTokenizer(shared_data / "tokenizers/llama_sentencepiece/tokenizer.model")
    one = [1, *tokenizer.encode(training_text(dialogues[0])), 2]
    assert list(data.train.tokens) == one * 40
    assert {len(rows) for rows in (data.train, data.validation, data.test)} == {len(one) * 40 // 512}
    assert data.subjects == []

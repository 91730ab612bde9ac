"""Token ids: BOS, EOS and the letters of answers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sentencepiece_models import train_tokenizer

from flagperf.errors import BadInput, Unsupported
from flagperf_cases.llama2_7b_finetune.data import SentencePieceTokenizer, WordTokenizer


def test_a_model_with_bos_and_eos_is_read(tmp_path: Path) -> None:
    tokenizer = SentencePieceTokenizer(train_tokenizer(tmp_path / "tokenizer.model"))
    assert (tokenizer.bos, tokenizer.eos) == (1, 2)
    assert tokenizer.bos not in tokenizer.encode("the fox")


@pytest.mark.parametrize(("missing", "name"), [("bos_id", "BOS"), ("eos_id", "EOS")])
def test_a_model_without_bos_or_eos_is_refused(tmp_path: Path, missing: str, name: str) -> None:
    with pytest.raises(BadInput, match=f"has no {name} token"):
        SentencePieceTokenizer(train_tokenizer(tmp_path / "tokenizer.model", **{missing: -1}))


@pytest.mark.parametrize("content", [b"", b"not a model"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(BadInput, match="is not a SentencePiece model"):
        SentencePieceTokenizer(tmp_path / "tokenizer.model")


def test_where_sentencepiece_is_not_installed_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.model").touch()
    monkeypatch.setitem(sys.modules, "sentencepiece", None)  # as an import that fails
    with pytest.raises(Unsupported, match="needs the package sentencepiece: pip install sentencepiece"):
        SentencePieceTokenizer(tmp_path / "tokenizer.model")


def test_a_model_without_letters_cannot_answer(tmp_path: Path) -> None:
    path = train_tokenizer(tmp_path / "tokenizer.model", texts=["the quick brown fox jumps over the lazy dog"])
    with pytest.raises(BadInput, match="no pieces for the letters A to D"):
        SentencePieceTokenizer(path).answers()


def test_letters_of_the_real_vocabulary_are_one_piece_with_their_space(shared_data: Path) -> None:
    tokenizer = SentencePieceTokenizer(shared_data / "tokenizers/llama_sentencepiece/tokenizer.model")
    answers = tokenizer.answers()
    assert (tokenizer.num_tokens, tokenizer.bos, answers.lead) == (32000, 1, ())
    for letter, token in zip("ABCD", answers.letters, strict=True):
        assert tokenizer.encode(f"Answer: {letter}") == [*tokenizer.encode("Answer:"), token]


def test_where_a_letter_is_not_one_piece_the_space_comes_first_for_all_four(shared_data: Path) -> None:
    tokenizer = SentencePieceTokenizer(shared_data / "tiny_llama_stories260K/hf/tokenizer.model")
    answers = tokenizer.answers()
    assert len(set(answers.letters)) == 4
    assert tokenizer.encode("Answer: A") == [*tokenizer.encode("Answer:"), *answers.lead, answers.letters[0]]


def test_words_and_marks_are_tokens_of_their_own() -> None:
    tokenizer = WordTokenizer(["a b, (c)\r\nA. x"])
    assert len(tokenizer.encode("b, (c)\n")) == 6
    assert {tokenizer.bos, tokenizer.eos}.isdisjoint(tokenizer.encode("a b c"))
    assert len(set(tokenizer.answers().letters)) == 4

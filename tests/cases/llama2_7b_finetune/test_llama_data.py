"""llama2_7b_finetune's data: dialogues and the rows made of them, tokenizers, MMLU and what the model is asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from case_harness import CaseHarness
from sentencepiece_models import train_tokenizer

from flagperf.errors import BadInput, Unsupported
from flagperf_cases.llama2_7b_finetune.case import training_loader
from flagperf_cases.llama2_7b_finetune.data import (
    CHECKPOINT,
    Rows,
    SentencePieceTokenizer,
    WordTokenizer,
    load_data,
    packed_rows,
    synthetic_dialogues,
    synthetic_tokenizer,
    training_text,
)
from flagperf_cases.llama2_7b_finetune.mmlu import (
    CATEGORIES,
    SUBJECTS,
    Question,
    Subject,
    original_tokens,
    prompt_text,
    prompts,
    question_files,
    read_questions,
    read_subjects,
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


# --- tokenizers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "name"), [("bos_id", "BOS"), ("eos_id", "EOS")])
def test_a_model_without_bos_or_eos_is_refused(tmp_path: Path, missing: str, name: str) -> None:
    with pytest.raises(BadInput, match=f"has no {name} token"):
        SentencePieceTokenizer(train_tokenizer(tmp_path / "tokenizer.model", **{missing: -1}))


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


# --- MMLU -------------------------------------------------------------------------------------------------------------

ADD = Question("1 + 1 = ?", ("1", "2", "3", "4"), 1)
TAKE = Question("3 - 1 = ?", ("2", "1", "0", "3"), 0)


def test_every_subject_is_in_one_category() -> None:
    assert len(SUBJECTS) == len(set(SUBJECTS)) == 57
    assert {name: len(subjects) for name, subjects in CATEGORIES.items()} == {
        "STEM": 18,
        "humanities": 13,
        "social sciences": 12,
        "other": 14,
    }


# --- files ----------------------------------------------------------------------------------------------------------


def test_questions_keep_their_commas_quotes_line_ends_and_the_word_none(tmp_path: Path) -> None:
    path = tmp_path / "logic_test.csv"
    path.write_bytes(b'"Is it, ""so""?\nOr not?",None,NA,,"a, b",D\n')
    assert read_questions(path) == [Question('Is it, "so"?\nOr not?', ("None", "NA", "", "a, b"), 3)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"question,A,B,C,D,answer\nq,1,2,3,4,A\n", "row 1: the answer must be one of A, B, C and D, found 'answer'"),
        (b"q,1,2,3,4,A\nq,1,2,3,4,2\n", "row 2: the answer must be one of A, B, C and D, found '2'"),
        (b"q,1,2,3,4,a\n", "found 'a'"),
        (b"q,1,2,3,4,\n", "found ''"),
        (b"q,1,2,3,A\n", "row 1 has 5 columns"),
        (b"q,1,2,3,4,A\n\n", "row 2 is blank; delete it"),
        (b"q,1,2,3,4,A\n ,\n", "row 2 is blank; delete it"),
        (b" ,1,2,3,4,A\n", "row 1: the question is empty"),
        (b'\xef\xbb\xbf"q, q",1,2,3,4,A\n', "begins with a byte order mark"),
        (b'"q,1,2,3,4,A\n', "cannot read"),
        (b"q,1,2,3,4,A\n\xff\xfe,1,2,3,4,A\n", "line 2 is not UTF-8"),
        (b"\xef\xbb\xbfq,1,2,3,4,A\n", "begins with a byte order mark"),
    ],
)
def test_a_look_alike_is_refused_with_its_row(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "logic_test.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_questions(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "https://github.com/hendrycks/test" in str(caught.value)


def test_windows_line_ends_change_no_question(tmp_path: Path) -> None:
    plain, windows = tmp_path / "plain.csv", tmp_path / "windows.csv"
    content = b'"Is it\nso?",1,2,3,4,A\n"Or\n\nnot?",1,2,3,"4\n5",B\n'
    plain.write_bytes(content)
    windows.write_bytes(content.replace(b"\n", b"\r\n"))
    assert read_questions(plain) == read_questions(windows)
    mixed = tmp_path / "mixed.csv"  # as one of MMLU's own files: these two line ends are the question's
    mixed.write_bytes(b'"Is it\r\nso?",1,2,3,4,A\nq,1,2,3,4,B\n')
    assert read_questions(mixed)[0].text == "Is it\r\nso?"


@pytest.fixture
def real_folder(shared_data: Path, tmp_path: Path) -> Path:
    (tmp_path / "mmlu_dataset").symlink_to(shared_data / "mmlu/data")
    return tmp_path


def test_the_real_files_are_read_whole(real_folder: Path) -> None:
    subjects = read_subjects(real_folder, 57, 0)
    assert len(question_files(real_folder, 57)) == 114
    assert [subject.name for subject in subjects] == list(SUBJECTS)
    assert {len(subject.examples) for subject in subjects} == {5}
    assert {len(subject.questions) for subject in subjects} == {20}
    everything = [question for subject in subjects for question in (*subject.examples, *subject.questions)]
    assert sum("None" in question.options for question in everything) > 0
    assert {question.answer for question in everything} == {0, 1, 2, 3}


# --- prompts --------------------------------------------------------------------------------------------------------


def test_a_prompt_has_the_usual_form() -> None:
    assert prompt_text(Subject("high_school_maths", "STEM", (), ()), [TAKE], ADD) == (
        "The following are multiple choice questions (with answers) about  high school maths.\n\n"
        "3 - 1 = ?\nA. 2\nB. 1\nC. 0\nD. 3\nAnswer: A\n\n"
        "1 + 1 = ?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:"
    )


def maths(num_questions: int = 1) -> tuple[list[Subject], WordTokenizer]:
    examples = tuple(Question(f"{n} + 0 = ?", ("0", "1", "2", "3"), n % 4) for n in range(5))
    subject = Subject("maths", "STEM", examples, (ADD,) * num_questions)
    return [subject], WordTokenizer([prompt_text(subject, examples, ADD)])


def test_a_prompt_that_is_too_long_loses_examples_from_the_front_and_never_the_question() -> None:
    subjects, tokenizer = maths()
    lengths = []
    for num_shots in range(6):
        (whole,) = prompts(subjects, [0], tokenizer, num_shots=num_shots, longest=1000)
        assert whole.num_shots == num_shots
        lengths.append(len(whole.tokens))
    (cut,) = prompts(subjects, [0], tokenizer, num_shots=5, longest=lengths[4] - 1)
    kept = prompt_text(subjects[0], subjects[0].examples[2:], ADD)
    assert (cut.num_shots, cut.tokens) == (3, [tokenizer.bos, *tokenizer.encode(kept)])
    (bare,) = prompts(subjects, [0], tokenizer, num_shots=5, longest=3)
    assert (bare.num_shots, len(bare.tokens)) == (0, lengths[0])
    assert bare.tokens == [tokenizer.bos, *tokenizer.encode(prompt_text(subjects[0], (), ADD))]


@pytest.mark.parametrize(
    ("longest", "kept"),
    [
        (100, ["about  maths.", "first", "second", "question", "rest\nAnswer:"]),
        (15, ["about  maths.", "second", "question", "rest\nAnswer:"]),
        (9, ["about  maths.", "rest\nAnswer:"]),
        (3, ["about  maths."]),
    ],
)
def test_the_original_deletes_the_block_after_the_first_blank_line(longest: int, kept: list[str]) -> None:
    whole = "about  maths.\n\nfirst\n\nsecond\n\nquestion\n\nrest\nAnswer:"
    tokenizer = WordTokenizer([whole])
    assert original_tokens(whole, tokenizer, longest) == [tokenizer.bos, *tokenizer.encode("\n\n".join(kept))]


def test_questions_are_numbered_through_all_subjects() -> None:
    subjects, tokenizer = maths(3)
    found = list(prompts([*subjects, *subjects], [0, 2, 3, 5], tokenizer, num_shots=0, longest=100))
    assert [prompt.subject for prompt in found] == [0, 0, 1, 1]


def test_real_prompts_begin_with_bos_and_end_before_the_letter(real_folder: Path, shared_data: Path) -> None:
    tokenizer = SentencePieceTokenizer(shared_data / "tokenizers/llama_sentencepiece/tokenizer.model")
    subjects = read_subjects(real_folder, 57, 1)
    asked = list(prompts(subjects, range(57), tokenizer, num_shots=5, longest=512))
    letters = tokenizer.answers().letters
    for prompt, subject in zip(asked, subjects, strict=True):
        question = subject.questions[0]
        kept = subject.examples[5 - prompt.num_shots :]
        text = f"{prompt_text(subject, kept, question)} {'ABCD'[question.answer]}"
        assert [*prompt.tokens, letters[prompt.answer]] == [tokenizer.bos, *tokenizer.encode(text)]
        assert len(prompt.tokens) <= 512 or prompt.num_shots == 0
    assert 0 < sum(prompt.num_shots < 5 for prompt in asked) < 57

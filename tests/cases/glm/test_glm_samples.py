"""How a cloze is laid out for the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_harness import CaseHarness

from flagperf.errors import BadInput
from flagperf_cases.glm.data import Samples, WordPieceTokenizer, make_samples, swap_passages
from flagperf_cases.glm.record import Cloze, evaluation_clozes, read_records, synthetic_records, training_clozes
from flagperf_cases.sampler import MicroBatch, TrainingSampler

CASE = CaseHarness("glm")

CLOZE = Cloze("Anna ran . Li Na won .", "it tells of @placeholder .", ("Anna", "Li Na"), frozenset([0]))


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer.for_synthetic_data()


def samples_of(tokenizer: WordPieceTokenizer, *clozes: Cloze, length: int = 20) -> Samples:
    return make_samples("test", clozes, tokenizer, length)


def words(tokenizer: WordPieceTokenizer, tokens: list[int]) -> list[str]:
    marks = {tokenizer.start: "<start>", tokenizer.end: "<end>"}
    return [marks.get(token) or tokenizer._tokenizer.id_to_token(token) for token in tokens]


def test_a_text_with_its_blank_is_followed_by_the_answer(tokenizer: WordPieceTokenizer) -> None:
    filled = samples_of(tokenizer, CLOZE).fill_blank(0, 1)
    text = ["[CLS]", "anna", "ran", ".", "li", "na", "won", ".", "it", "tells", "of", "[MASK]", ".", "[PAD]"]
    assert words(tokenizer, filled.tokens) == [*text, "<start>", "li", "na"]
    assert words(tokenizer, filled.targets) == ["li", "na", "<end>"]
    assert (filled.context, filled.blank) == (14, 11)


def test_only_the_passage_is_shortened_from_its_end(tokenizer: WordPieceTokenizer) -> None:
    samples = samples_of(tokenizer, CLOZE, length=12)
    for candidate, passage in ((0, "anna ran ."), (1, "anna ran")):
        filled = samples.fill_blank(0, candidate)
        text = f"[CLS] {passage} it tells of [MASK] . [PAD]".split()
        assert words(tokenizer, filled.tokens)[: len(text)] == text
        assert len(filled.tokens) == 12


def test_a_query_that_does_not_fit_is_refused(tokenizer: WordPieceTokenizer) -> None:
    assert samples_of(tokenizer, CLOZE, length=10).fill_blank(0, 1).context == 7  # nothing is left of the passage
    with pytest.raises(BadInput, match=r"takes 10 positions with its longest candidate, and model\.sequence is 9"):
        samples_of(tokenizer, CLOZE, length=9)


def test_swapped_passages_leave_query_and_candidates(tokenizer: WordPieceTokenizer) -> None:
    samples = make_samples("stories", training_clozes(synthetic_records("train", 10)), tokenizer, 36)
    swapped = swap_passages(samples)
    for row, (sample, other) in enumerate(zip(samples.samples, swapped.samples, strict=True)):
        assert (other.before, other.after, other.candidates) == (sample.before, sample.after, sample.candidates)
        assert other.passage is samples.samples[(row + 5) % 10].passage
    assert samples.sha256 != swapped.sha256


def test_samples_of_one_passage_share_it(tokenizer: WordPieceTokenizer) -> None:
    samples = samples_of(tokenizer, CLOZE, Cloze(CLOZE.passage, "@placeholder ran", ("Anna",), frozenset([0])))
    assert samples.samples[0].passage is samples.samples[1].passage


# --- tensors --------------------------------------------------------------------------------------------------------


def test_positions_blocks_and_targets_are_as_the_paper_has_them(tokenizer: WordPieceTokenizer) -> None:
    pytest.importorskip("torch")
    from flagperf_cases.glm.case import make_inputs

    samples = samples_of(tokenizer, CLOZE, length=20)
    inputs, lengths = make_inputs(samples, [(0, 0), (0, 1)])
    assert lengths == [16, 17]
    assert inputs["context"].tolist() == [14, 14]
    text = list(range(14))
    assert inputs["positions"].tolist() == [[*text, 11, 11, 0, 0, 0, 0], [*text, 11, 11, 11, 0, 0, 0]]
    assert inputs["blocks"].tolist() == [[0] * 14 + [1, 2, 0, 0, 0, 0], [0] * 14 + [1, 2, 3, 0, 0, 0]]
    assert inputs["answer_at"].tolist() == [[14, 15, 16]] * 2
    assert [words(tokenizer, row) for row in inputs["targets"].tolist()] == [
        ["anna", "<end>", "[PAD]"],
        ["li", "na", "<end>"],
    ]
    assert inputs["target_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert words(tokenizer, inputs["tokens"][0].tolist())[13:] == ["[PAD]", "<start>", "anna", *["[PAD]"] * 4]


def test_missing_candidates_and_repeated_rows_count_as_padding(tokenizer: WordPieceTokenizer) -> None:
    pytest.importorskip("torch")
    from flagperf_cases.glm.case import training_loader

    alone = Cloze(CLOZE.passage, CLOZE.query, ("Anna",), frozenset([0]))
    rows = TrainingSampler(2, batch_size=3, accumulate=1, epochs=1, max_steps=0, seed=0, rank=0, world_size=1)
    loader = training_loader(samples_of(tokenizer, CLOZE, alone), rows, num_workers=0)
    (batch,) = loader.dataset[[MicroBatch([0, 1, 0], [1, 1, 0], 0.5)]]
    assert batch["candidates"].tolist() == [[True, True], [True, False], [True, True]]
    assert batch["inputs"]["tokens"].shape == (6, 20)
    assert batch["inputs"]["tokens"][3].tolist() == batch["inputs"]["tokens"][2].tolist()
    assert (batch["samples"], batch["tokens"], batch["padded_tokens"]) == (2, 16 + 17 + 16, 6 * 20 - 49)
    assert batch["weights"].tolist() == [1, 1, 0]


def test_loader_processes_give_the_same_batches(tokenizer: WordPieceTokenizer) -> None:
    pytest.importorskip("torch")
    from flagperf_cases.glm.case import training_loader

    samples = make_samples("stories", training_clozes(synthetic_records("train", 12)), tokenizer, 36)
    batches = []
    for num_workers in (0, 1):
        rows = TrainingSampler(12, batch_size=4, accumulate=1, epochs=1, max_steps=0, seed=0, rank=0, world_size=1)
        loader = training_loader(samples, rows, num_workers)
        batches.append([batch["inputs"]["tokens"].tolist() for step in loader for batch in step])
    assert batches[0] == batches[1]


# --- real data ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(shared_data: Path) -> WordPieceTokenizer:
    return WordPieceTokenizer.from_file(shared_data / "tokenizers/bert-base-uncased/vocab.txt")


def test_marks_follow_the_vocabulary(bert: WordPieceTokenizer) -> None:
    assert (bert.pad, bert.cls, bert.mask, bert.start, bert.end) == (0, 101, 103, 30522, 30523)
    assert bert.end < CASE.values("standard")["model"]["vocabulary"]


def test_official_files_are_read_whole(shared_data: Path, bert: WordPieceTokenizer) -> None:
    folder = shared_data / "record/SuperGLUE/ReCoRD"
    train, val = (list(read_records(folder / name)) for name in ("train.jsonl", "val.jsonl"))
    assert (sum(len(record.qas) for record in train), sum(len(record.qas) for record in val)) == (9, 2)
    first = next(evaluation_clozes(val))
    assert {first.candidates[index] for index in first.right} == {"Tracy Morgan", "Morgan"}
    assert "@highlight" not in first.passage
    samples = make_samples("val", evaluation_clozes(val), bert, 512)
    morgan = samples.fill_blank(0, first.candidates.index("Tracy Morgan"))
    assert morgan.targets == [*bert.encode([" tracy morgan"])[0], 30523]
    assert words(bert, morgan.tokens)[morgan.blank - 2 : morgan.blank + 3] == ["followed", "by", "[MASK]", "a", "week"]
    assert words(bert, morgan.tokens)[morgan.context :] == ["<start>", "tracy", "morgan"]


def test_the_test_split_is_refused(shared_data: Path) -> None:
    with pytest.raises(BadInput, match="as in the test split"):
        list(read_records(shared_data / "record/SuperGLUE/ReCoRD/test.jsonl"))


def test_the_layout_before_superglue_is_refused(shared_data: Path) -> None:
    with pytest.raises(BadInput, match="line 1 is not a JSON object on one line"):
        list(read_records(shared_data / "record/original_json/record.json"))


@pytest.mark.parametrize("name", ["train.jsonl", "dev32.jsonl"])
def test_real_passages_keep_their_answers_on_the_way_to_the_model(
    shared_data: Path, bert: WordPieceTokenizer, name: str
) -> None:
    """Offsets, candidates and pieces: what the model is to say is the answer's own text."""
    pytest.importorskip("torch")
    from flagperf_cases.glm.case import make_inputs

    records = list(read_records(shared_data / "record/FewGLUE_32dev/ReCoRD" / name))
    assert len(records) == 32
    samples = make_samples(name, training_clozes(records), bert, 512)
    answers = [sorted({answer.text for answer in record.qas[0].answers}) for record in records]
    assert [sample.texts[0] for sample in samples.samples] == [text for texts in answers for text in texts]
    assert all(2 <= len(sample.candidates) <= 10 for sample in samples.samples)
    inputs, lengths = make_inputs(samples, [(row, 0) for row in range(len(samples))])
    assert max(lengths) <= 512
    for row, sample in enumerate(samples.samples):
        pieces = inputs["targets"][row][inputs["target_mask"][row].bool()].tolist()
        assert bert._tokenizer.decode(pieces[:-1]).replace(" ", "") == sample.texts[0].lower().replace(" ", "")
        assert pieces[-1] == bert.end
        blank = inputs["positions"][row, inputs["context"][row]]
        assert inputs["tokens"][row, blank] == bert.mask

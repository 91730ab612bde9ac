"""glm's data: ReCoRD as SuperGLUE has it, the samples that are made of it, and the published checkpoint."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from case_harness import CaseHarness
from glm_checkpoints import save_checkpoint

from flagperf.errors import BadInput
from flagperf_cases.glm.case import Glm, load_checkpoint, make_inputs, training_loader
from flagperf_cases.glm.data import (
    Samples,
    WordPieceTokenizer,
    check_checkpoint,
    make_samples,
    swap_passages,
    weight_shapes,
)
from flagperf_cases.glm.record import (
    MAX_POSITIONS,
    Cloze,
    Record,
    entity_texts,
    evaluation_clozes,
    exact_match,
    f1,
    normalize,
    passage_text,
    problems,
    read_records,
    synthetic_records,
    training_clozes,
)
from flagperf_cases.sampler import MicroBatch, TrainingSampler

TEXT = "Ann met Bob’s cat – twice.\n@highlight\nAnn left\n@highlight\nBob stayed"


def line(**changes: Any) -> dict[str, Any]:
    """Ann (0 to 2 and 38 to 40) and Bob (8 to 10); the query asks for Ann."""
    answers = [{"start": 0, "end": 2, "text": "Ann"}, {"start": 38, "end": 40, "text": "Ann"}]
    entities = [{"start": 38, "end": 40}, {"start": 8, "end": 10}, {"start": 0, "end": 2}]
    question = {"query": "it was @placeholder who left", "answers": answers, "idx": 7, **changes.pop("question", {})}
    return {"source": "x", "idx": 0, "passage": {"text": TEXT, "entities": entities}, "qas": [question], **changes}


def record(**changes: Any) -> Record:
    return msgspec.convert(line(**changes), Record)


def crowd(num_people: int) -> Record:
    """P0 and P1 are both right."""
    names = [f"P{number:02d}" for number in range(num_people)]
    text = " ".join(names)
    entities = [{"start": 4 * number, "end": 4 * number + 2} for number in range(num_people)]
    answers = [{**entities[number], "text": names[number]} for number in (1, 0, 1)]
    return record(passage={"text": text, "entities": entities}, question={"answers": answers})


def test_entities_are_cut_by_inclusive_offsets_once_each_and_sorted() -> None:
    assert entity_texts(record()) == ["Ann", "Bob"]


def test_typographic_signs_become_plain_and_highlights_dashes() -> None:
    assert passage_text(record()) == "Ann met Bob's cat - twice.\n- Ann left\n- Bob stayed"


def test_training_has_a_sample_for_every_answer_which_is_its_first_candidate() -> None:
    samples = list(training_clozes([crowd(4)]))
    assert [sample.candidates for sample in samples] == [("P00", "P02", "P03"), ("P01", "P02", "P03")]
    assert all(sample.right == {0} for sample in samples)


def test_training_has_nine_wrong_candidates_at_most_drawn_for_every_sample_and_always_the_same() -> None:
    first, second = training_clozes([crowd(30)])
    wrong = [f"P{number:02d}" for number in range(2, 30)]
    order = random.Random(42)
    for answer, sample in (("P00", first), ("P01", second)):
        drawn = list(wrong)
        order.shuffle(drawn)
        assert sample.candidates == (answer, *drawn[:9])
    assert first.candidates[1:] != second.candidates[1:]
    assert list(training_clozes([crowd(30)])) == [first, second]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"qas": []}, "without queries"),
        ({"question": {"query": "who left?"}}, "without @placeholder"),
        ({"question": {"answers": []}}, "as in the test split"),
        ({"question": {"answers": [{"start": 0, "end": 3, "text": "Ann"}]}}, "the last character, which is one less"),
        ({"question": {"answers": [{"start": 4, "end": 6, "text": "Ann"}]}}, "'Ann' is not at 4 to 6"),
        ({"question": {"answers": [{"start": 4, "end": 6, "text": "met"}]}}, "is an entity of the passage"),
        ({"passage": {"text": "Ann", "entities": [{"start": 0, "end": 3}]}}, "0 to 3 in a passage of 3 characters"),
        ({"passage": {"text": "Ann", "entities": [{"start": 2, "end": 1}]}}, "2 to 1 in a passage"),
        ({"passage": {"text": "Ann  ", "entities": [{"start": 3, "end": 4}]}}, "that is blank"),
    ],
)
def test_a_faulty_record_is_described(changes: dict[str, Any], words: str) -> None:
    assert words in next(iter(problems(record(**changes))))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x89HDF\r\n\x1a\n\x00", "is an HDF5 file"),
        (b"{", "line 2 is not a JSON object on one line"),
        (b'{"version": "1.0",\n', "line 2 is not a JSON object on one line"),
        (
            b'{"version": "1.0", "data": []}\n',
            "line 2 is not a record of ReCoRD (Object missing required field",
        ),
        (b'{"passage": {"text": 3, "entities": []}, "qas": []}\n', "Expected `str`, got `int` - at `$.passage.text`"),
        (b'{"passage": {"text": "\xff", "entities": []}, "qas": []}\n', "line 2 is not a JSON object"),
        (b"\n", "line 2 is not a JSON object"),
        (json.dumps(line(qas=[])).encode(), "line 2: a passage without queries"),
    ],
)
def test_a_faulty_file_is_described_by_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "val.jsonl"
    first = b"" if words.startswith("is") else json.dumps(line()).encode() + b"\n"
    path.write_bytes(first + content)
    with pytest.raises(BadInput) as caught:
        list(read_records(path))
    assert str(caught.value).startswith(f"{path} ")
    assert words in str(caught.value)
    assert "super.gluebenchmark.com" in str(caught.value)


# --- made-up stories ------------------------------------------------------------------------------------------------


def test_stories_are_faultless_records_and_always_the_same() -> None:
    stories = synthetic_records("train", 200)
    assert stories == synthetic_records("train", 200) != synthetic_records("eval", 200)
    assert [problem for story in stories for problem in problems(story)] == []


def test_a_query_says_nothing_of_its_answer() -> None:
    stories = synthetic_records("train", 2000)
    answers = [story.qas[0].answers[0].text for story in stories]
    counts = {name: answers.count(name) for name in set(answers)}
    assert len({story.qas[0].query for story in stories}) == 1
    assert len(counts) == 12
    assert max(counts.values()) < 2 * min(counts.values())


def test_no_story_is_longer_than_it_says() -> None:
    samples = make_samples(
        "stories", training_clozes(synthetic_records("train", 2000)), WordPieceTokenizer.for_synthetic_data(), 64
    )
    assert max(len(samples.fill_blank(row, 0).tokens) for row in range(len(samples))) == MAX_POSITIONS


# --- scores ---------------------------------------------------------------------------------------------------------


def test_case_punctuation_and_articles_do_not_count() -> None:
    assert normalize("The  U.S. of a Kind!") == "us of kind"
    assert exact_match("the Beatles", ["Stones", "Beatles."]) == 1
    assert exact_match("Beatles", ["Stones"]) == 0


def test_f1_is_that_of_the_best_answer_by_words() -> None:
    assert f1("Tracy Morgan", ["SNL", "Morgan"]) == pytest.approx(2 * 1 * 0.5 / 1.5)
    assert f1("New New York", ["New York York"]) == pytest.approx(2 / 3)
    assert f1("Morgan", ["Tracy Morgan", "Morgan"]) == 1
    assert f1("NBC", ["SNL"]) == 0


# --- samples ---

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


# --- tensors --------------------------------------------------------------------------------------------------------


def test_positions_blocks_and_targets_are_as_the_paper_has_them(tokenizer: WordPieceTokenizer) -> None:
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
    alone = Cloze(CLOZE.passage, CLOZE.query, ("Anna",), frozenset([0]))
    rows = TrainingSampler(2, batch_size=3, accumulate=1, epochs=1, max_steps=0, seed=0, rank=0, world_size=1)
    loader = training_loader(samples_of(tokenizer, CLOZE, alone), rows, num_workers=0)
    (batch,) = loader.dataset[[MicroBatch([0, 1, 0], [1, 1, 0], 0.5)]]
    assert batch["candidates"].tolist() == [[True, True], [True, False], [True, True]]
    assert batch["inputs"]["tokens"].shape == (6, 20)
    assert batch["inputs"]["tokens"][3].tolist() == batch["inputs"]["tokens"][2].tolist()
    assert (batch["samples"], batch["tokens"], batch["padded_tokens"]) == (2, 16 + 17 + 16, 6 * 20 - 49)
    assert batch["weights"].tolist() == [1, 1, 0]


# --- real data ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(shared_data: Path) -> WordPieceTokenizer:
    return WordPieceTokenizer.from_file(shared_data / "tokenizers/bert-base-uncased/vocab.txt")


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


@pytest.mark.parametrize("name", ["train.jsonl", "dev32.jsonl"])
def test_real_passages_keep_their_answers_on_the_way_to_the_model(
    shared_data: Path, bert: WordPieceTokenizer, name: str
) -> None:
    """Offsets, candidates and pieces: what the model is to say is the answer's own text."""
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


# --- the checkpoint ---


def model_values(**changes: Any) -> dict[str, Any]:
    return CASE.values("tiny", **{f"model__{key}": value for key, value in changes.items()})["model"]


def build(**changes: Any) -> Any:
    return Glm(SimpleNamespace(**model_values(**changes)))


@pytest.fixture
def original() -> Any:
    torch.manual_seed(7)
    return build(layers=3, sequence=40).half()


@pytest.fixture(params=["zip", "legacy"])
def folder(original: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """With the arguments of the program that trained it. What else a checkpoint may hold, those of aquila_33b do."""
    content = {"module": original.state_dict(), "iteration": 200000, "args": argparse.Namespace(lr=1e-4, fp16=True)}
    save_checkpoint(tmp_path / "checkpoint", content, legacy=request.param == "legacy")
    return tmp_path / "checkpoint"


def problem(folder: Path, **changes: Any) -> str:
    """What is said before the run; the worker says it as well, and leaves its model as it was."""
    model = build(**changes)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(BadInput) as caught:
        load_checkpoint(model, folder)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(BadInput) as early:
        check_checkpoint(folder, model_values(**changes))
    assert str(folder) in str(early.value)
    assert str(early.value).partition(":")[0] == str(caught.value).partition(":")[0]
    return str(early.value)


def test_every_weight_is_taken_and_nothing_else(folder: Path, original: Any) -> None:
    model = build(layers=3, sequence=40)
    assert [path.name for path in check_checkpoint(folder, model_values(layers=3, sequence=40))] == [
        "latest_checkpointed_iteration.txt",
        "mp_rank_00_model_states.pt",
    ]
    load_checkpoint(model, folder)
    for name, tensor in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.float()), name


def test_shapes_are_known_without_the_model() -> None:
    state = build(layers=2).state_dict()
    assert weight_shapes(model_values(layers=2)) == {name: tuple(tensor.shape) for name, tensor in state.items()}


def test_a_smaller_model_takes_the_first_layers_and_positions(folder: Path, original: Any) -> None:
    model = build(layers=1, sequence=36)
    check_checkpoint(folder, model_values(layers=1, sequence=36))
    load_checkpoint(model, folder)
    positions = original.transformer.position_embeddings.weight
    assert torch.equal(model.transformer.position_embeddings.weight, positions[:37].float())


def test_a_longer_model_keeps_its_own_rows_for_the_positions_that_are_missing(folder: Path, original: Any) -> None:
    model = build(layers=3, sequence=50)
    check_checkpoint(folder, model_values(layers=3, sequence=50))
    own = model.transformer.block_position_embeddings.weight.detach().clone()
    load_checkpoint(model, folder)
    loaded = model.transformer.block_position_embeddings.weight
    assert torch.equal(loaded[:41], original.transformer.block_position_embeddings.weight.float())
    assert torch.equal(loaded[41:], own[41:])


def test_a_checkpoint_that_does_not_fit_is_refused(folder: Path) -> None:
    assert "transformer.layers.3.attention.query_key_value.weight is missing" in problem(folder, layers=4)
    words = "word_embeddings.weight has the shape (64, 64), not (64, 32)"
    assert words in problem(folder, layers=3, width=32)


@pytest.mark.parametrize("content", [{"model": {}}, {"module": {"word_embeddings.weight": 3}}, [1, 2]])
def test_a_file_without_weights_is_refused(tmp_path: Path, content: Any) -> None:
    save_checkpoint(tmp_path, content)
    assert "has no weights under the key `module`" in problem(tmp_path)

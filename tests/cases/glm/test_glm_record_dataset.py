"""ReCoRD as SuperGLUE has it, and what is made of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flagperf.errors import BadInput
from flagperf_cases.glm.record import (
    MAX_POSITIONS,
    NUM_MENTIONS,
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
    text_at,
    training_clozes,
)

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


def test_nine_wrong_candidates_are_taken_as_they_are() -> None:
    first, _ = training_clozes([crowd(11)])
    assert first.candidates == ("P00", *(f"P{number:02d}" for number in range(2, 11)))


def test_evaluation_has_a_sample_for_every_query_with_all_entities() -> None:
    (sample,) = evaluation_clozes([crowd(30)])
    assert len(sample.candidates) == 30
    assert sample.right == {0, 1}


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


def test_a_story_tells_most_often_of_its_answer_wherever_that_stands() -> None:
    stories = synthetic_records("train", 500)
    places = set()
    for story in stories:
        people = [text_at(story.passage.text, entity) for entity in story.passage.entities]
        (answer,) = {answer.text for answer in story.qas[0].answers}
        assert people.count(answer) == NUM_MENTIONS
        assert all(people.count(other) == 1 for other in set(people) - {answer})
        places.add(people.index(answer))
    assert len(places) >= 3


def test_a_query_says_nothing_of_its_answer() -> None:
    stories = synthetic_records("train", 2000)
    answers = [story.qas[0].answers[0].text for story in stories]
    counts = {name: answers.count(name) for name in set(answers)}
    assert len({story.qas[0].query for story in stories}) == 1
    assert len(counts) == 12
    assert max(counts.values()) < 2 * min(counts.values())


def test_no_story_is_longer_than_it_says() -> None:
    from flagperf_cases.glm.data import WordPieceTokenizer, make_samples

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

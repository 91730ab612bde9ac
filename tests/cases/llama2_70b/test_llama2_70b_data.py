"""Megatron's files, text, made-up tokens; which samples a step has; what is refused before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness
from indexed_datasets import write_indexed

from flagperf.errors import BadInput
from flagperf_cases.llama2_70b.data import ShuffledSamples, check_files, load_data
from flagperf_cases.llama2_70b.streams import TokenStream, read_index

CASE = CaseHarness("llama2_70b")

DOCUMENTS = [[5, 6, 7, 1], [8, 9, 1], [10] * 90 + [1]]
PREFIX = "tokens"


def indexed(**changes: Any) -> dict[str, Any]:
    return CASE.values(data__source="indexed", data__prefix=PREFIX, **changes)


def test_tokens_of_all_documents_are_one_stream(tmp_path: Path) -> None:
    write_indexed(tmp_path / PREFIX, DOCUMENTS)
    index = read_index(tmp_path / PREFIX)
    assert (index.num_tokens, list(index.lengths)) == (98, [4, 3, 91])
    assert TokenStream(index).part(2, 9) == [7, 1, 8, 9, 1, 10, 10]


def test_samples_overlap_by_the_token_that_is_only_a_label(tmp_path: Path) -> None:
    write_indexed(tmp_path / PREFIX, [list(range(40)), list(range(40))])
    samples = load_data(indexed(model__sequence=16), tmp_path)
    assert len(samples) == 4
    assert samples[1] == list(range(16, 33))


def test_files_are_recorded_with_their_hashes(tmp_path: Path) -> None:
    write_indexed(tmp_path / PREFIX, DOCUMENTS)
    assert [file.path for file in check_files(tmp_path, indexed())] == ["tokens.bin", "tokens.idx"]


def test_the_published_index_is_read(shared_data: Path) -> None:
    prefix = shared_data / "megatron_indexed/openwebtext_gpt2tiny/meg-gpt2-openwebtext_text_document"
    index = read_index(prefix)
    assert (index.num_tokens, len(index.lengths), index.item_bytes) == (1_361_845, 1000, 2)
    config = CASE.values(data__source="indexed", data__prefix=prefix.name, model__vocabulary=5000)
    assert len(check_files(prefix.parent, config)) == 2


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_cut_files_are_refused(tmp_path: Path, suffix: str) -> None:
    write_indexed(tmp_path / PREFIX, DOCUMENTS)
    cut(tmp_path / (PREFIX + suffix))
    with pytest.raises(BadInput, match="truncated"):
        check_files(tmp_path, indexed())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "has version 2, and only version 1 is supported"),
        ({"code": 7}, "type 7, which is not an integer type"),
    ],
)
def test_other_indexes_are_refused(tmp_path: Path, changes: dict[str, int], message: str) -> None:
    write_indexed(tmp_path / PREFIX, DOCUMENTS, **changes)
    with pytest.raises(BadInput, match=message):
        check_files(tmp_path, indexed())


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    write_indexed(tmp_path / PREFIX, DOCUMENTS)
    (tmp_path / (PREFIX + ".idx")).write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(BadInput, match="does not begin as Megatron's"):
        check_files(tmp_path, indexed())


def test_tokens_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    write_indexed(tmp_path / PREFIX, [[64] * 100])
    with pytest.raises(BadInput, match="token 64 is not below model"):
        check_files(tmp_path, indexed())


def test_an_index_of_nothing_is_refused(tmp_path: Path) -> None:
    write_indexed(tmp_path / PREFIX, [])
    with pytest.raises(BadInput, match="has no tokens"):
        check_files(tmp_path, indexed())


@pytest.mark.parametrize("prefix", ["", "/", "/elsewhere/tokens", "../tokens"])
def test_prefixes_of_files_elsewhere_are_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(BadInput, match="names no files below --data-dir"):
        check_files(tmp_path, CASE.values(data__source="indexed", data__prefix=prefix))


def test_data_that_differ_anywhere_have_different_hashes(tmp_path: Path) -> None:
    def hash_of(**changes: Any) -> str:
        return load_data(indexed(model__sequence=4, **changes), tmp_path).sha256

    write_indexed(tmp_path / PREFIX, DOCUMENTS)
    found = [hash_of()]
    write_indexed(tmp_path / PREFIX, [*DOCUMENTS[:2], [10] * 86 + [11] * 4 + [1]])  # another end
    found.append(hash_of())
    write_indexed(tmp_path / PREFIX, [*DOCUMENTS, [10] * 4])  # one sample more
    found.append(hash_of())
    assert len(set(found)) == 3
    made_up = [load_data(CASE.values(data__tokens=tokens), None).sha256 for tokens in (8192, 8192, 16384)]
    assert made_up[0] == made_up[1] != made_up[2]


def test_missing_and_short_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        check_files(tmp_path, indexed())
    write_indexed(tmp_path / PREFIX, [[1, 2, 3]])
    with pytest.raises(BadInput, match="3 tokens, too few for one sample"):
        check_files(tmp_path, indexed())
    with pytest.raises(BadInput, match=r"has no \.txt files"):
        check_files(tmp_path, CASE.values(data__source="text"))


def test_text_is_cut_by_its_tokenizer(shared_data: Path, tmp_path: Path) -> None:
    model = shared_data / "tiny_llama_stories260K/tok512.model"
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("Once upon a time there was a cat.\n" * 20)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer/tokenizer.model").write_bytes(model.read_bytes())
    config = CASE.values(data__source="text", model__vocabulary=512)
    assert [file.path for file in check_files(tmp_path, config)] == ["text/a.txt", "tokenizer/tokenizer.model"]
    stream = load_data(config, tmp_path).stream
    assert (stream.part(0, 1), stream.part(len(stream) - 1, len(stream))) == ([1], [2])
    (tmp_path / "tokenizer/tokenizer.model").write_bytes(b"nothing")
    with pytest.raises(BadInput, match="not a SentencePiece model"):
        check_files(tmp_path, config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parallel__tp": 4}, "parallel.tp=4 does not divide model.kv_heads=2"),
        ({"parallel__tp": 2, "model__sequence": 33}, "parallel.tp=2 does not divide model.sequence=33"),
        ({"parallel__tp": 2, "model__vocabulary": 63}, "parallel.tp=2 does not divide model.vocabulary=63"),
        ({"parallel__pp": 4, "parallel__tp": 1}, "4 stages need a layer each, and model.layers is 2"),
        ({"parallel__pp": 2, "training__accumulate": 1}, "at least 2 micro-batches per step; training.accumulate is 1"),
        ({"parallel__pp": 2, "parallel__stages": [1, 1, 1]}, "lists 3 stages, and parallel.pp is 2"),
        ({"parallel__pp": 2, "parallel__stages": [2, 1]}, "has 3 layers in all, and model.layers is 2"),
        ({"parallel__pp": 2, "parallel__stages": [2, 0]}, "each at least 1"),
        ({"model__heads": 3}, "model.heads=3 does not divide model.width=64"),
    ],
)
def test_layouts_that_the_model_does_not_allow_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message.replace(".", r"\.")):
        check_files(None, CASE.values(devices=4, **changes))


def test_every_sample_is_used_once_before_a_new_order_begins() -> None:
    order = ShuffledSamples(10, 3)
    rows = [order[place] for place in range(20)]
    assert sorted(rows[:10]) == sorted(rows[10:]) == list(range(10))
    assert rows[:10] != rows[10:] and rows[:10] != list(range(10))
    other = ShuffledSamples(10, 4)
    assert rows != [other[place] for place in range(20)]
    assert [order[place] for place in range(10)] == rows[:10], "an epoch can be gone back to"


def test_more_samples_than_megatron_could_order_are_refused(tmp_path: Path) -> None:
    write_indexed(tmp_path / PREFIX, DOCUMENTS)
    with pytest.raises(BadInput, match=r"lower training\.max_samples, or set data\.order=samples"):
        check_files(tmp_path, indexed(data__order="megatron", training__max_samples=1 << 40))

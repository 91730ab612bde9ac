"""llama2_70b: its token streams, its layouts, and the same training on two replicas of two stages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness, global_losses, reports, steps
from indexed_datasets import write_indexed

from flagperf.errors import BadInput
from flagperf.plan.settings import fit_layout, parallel_layer, parse_parallel
from flagperf.spec.job import RunSpec
from flagperf.spec.values import Layer, Resolved, resolve
from flagperf_cases.decoder.layout import bubble
from flagperf_cases.llama2_70b.data import ShuffledSamples, check_files, load_data
from flagperf_cases.llama2_70b.streams import TokenStream, read_index

CASE = CaseHarness("llama2_70b")


DOCUMENTS = [[5, 6, 7, 1], [8, 9, 1], [10] * 90 + [1]]
PREFIX = "tokens"


def indexed(**changes: Any) -> dict[str, Any]:
    return CASE.values(**{"data__source": "indexed", "data__prefix": PREFIX, **changes})


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


@pytest.mark.parametrize(
    ("documents", "form", "message"),
    [
        (DOCUMENTS, {"version": 2}, "has version 2, and only version 1 is supported"),
        (DOCUMENTS, {"code": 7}, "type 7, which is not an integer type"),
        ([], {}, "has no tokens"),
        ([[1, 2, 3]], {}, "3 tokens, too few for one sample"),
    ],
)
def test_an_index_that_cannot_be_used_is_refused(
    tmp_path: Path, documents: list[list[int]], form: dict[str, int], message: str
) -> None:
    write_indexed(tmp_path / PREFIX, documents, **form)
    with pytest.raises(BadInput, match=message):
        check_files(tmp_path, indexed())


def test_missing_data_are_refused(tmp_path: Path) -> None:
    for source, message in (("indexed", "cannot read"), ("text", r"has no \.txt files")):
        with pytest.raises(BadInput, match=message):
            check_files(tmp_path, indexed(data__source=source))


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


# --- layouts ----------------------------------------------------------------------------------------------------------


def fitted(nodes: int, devices: int, asked: str) -> Resolved:
    """Profile tiny with --parallel."""
    found = CASE.manifest()
    layers = [Layer("tiny", found.profiles["tiny"].values), *([parallel_layer(asked, found)] if asked else [])]
    return fit_layout(resolve(found, layers), RunSpec("llama2_70b", nodes=nodes, devices=devices))


@pytest.mark.parametrize(
    ("nodes", "devices", "asked", "layout"),
    [
        (1, 1, "", (1, 1, 1)),
        (1, 2, "", (2, 1, 1)),
        (1, 3, "", (1, 1, 3)),
        (1, 4, "", (2, 2, 1)),
        (1, 8, "", (2, 2, 2)),
        (2, 3, "", (1, 2, 3)),  # tensor parallel groups fill nodes
        (2, 1, "", (1, 2, 1)),
        (2, 4, "TP4", (4, 1, 2)),
        (2, 4, "TP8", (8, 1, 1)),
    ],
)
def test_tiny_fits_its_layout_to_the_devices(nodes: int, devices: int, asked: str, layout: tuple[int, ...]) -> None:
    parallel = fitted(nodes, devices, asked).values["parallel"]
    assert (parallel["tp"], parallel["pp"], parallel["dp"]) == layout


@pytest.mark.parametrize(
    ("nodes", "devices", "asked", "message"),
    [
        (2, 3, "TP2", "tp=2 does not fit nodes of 3 devices"),
        (1, 4, "TP4PP8DP1", "the layout TP4PP8DP1 needs 32 devices, and --nodes 1 x --devices 4 is 4"),
        (1, 4, "TP3", "the layout TP3PP1 needs a multiple of 3 devices"),
        (1, 4, "TP2PP1DP1", "needs 2 devices"),
    ],
)
def test_a_layout_that_does_not_fit_the_devices_is_refused(nodes: int, devices: int, asked: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        fitted(nodes, devices, asked)


def test_what_was_chosen_to_fit_is_no_change_of_the_configuration() -> None:
    config = fitted(1, 4, "TP2")
    assert config.layers["parallel.dp"] == "fits 4 devices"
    assert config.values["parallel"]["dp"] == 2
    assert config.deviations == {"parallel.tp": "--parallel", "parallel.pp": "--parallel"}


@pytest.mark.parametrize(("text", "layout"), [("TP4PP8DP1", (4, 8, 1)), ("tp2dp4", (2, 1, 4)), ("PP2", (1, 2, 0))])
def test_layouts_are_read(text: str, layout: tuple[int, int, int]) -> None:
    assert parse_parallel(text) == layout


@pytest.mark.parametrize("text", ["", "4x8", "TP0PP2", "TP2 PP2", "PP2TP2", "TP2PP2DP0", "TP" + "9" * 5000])
def test_other_texts_are_no_layout(text: str) -> None:
    with pytest.raises(BadInput, match="TP4PP8DP1"):
        parse_parallel(text)


@pytest.mark.parametrize(
    ("pp", "micro_batches", "share"), [(4, 44, 0.064), (8, 44, 0.137), (8, 1024, 0.007), (1, 44, 0.0)]
)
def test_bubble_is_that_of_1f1b(pp: int, micro_batches: int, share: float) -> None:
    assert bubble(pp, micro_batches) == pytest.approx(share, abs=5e-4)


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.run
def test_made_up_tokens_are_learnt_and_noise_is_not() -> None:
    learnt = [step.loss for step in steps(CASE.run(CASE.values()))]
    noise = [step.loss for step in steps(CASE.run(CASE.values(data__noise=1.0, training__max_steps=15)))]
    assert learnt[0] == pytest.approx(math.log(64), abs=0.3)
    assert learnt[-1] < 2.0
    assert min(noise) > math.log(64) - 0.4


STEPS = {"training__max_steps": 3}
REPLICAS = {**STEPS, "parallel__tp": 1, "parallel__pp": 2, "training__batch_size": 2}
"""PP2DP2, with half of each micro-batch on each replica. TP2PP2 is aligned by the real command, in tests/e2e."""


@pytest.mark.run
def test_two_replicas_of_two_stages_train_as_one_process_does(tmp_path: Path) -> None:
    alone = CASE.run(CASE.values(**STEPS))
    (ranks,) = CASE.run_ranks(tmp_path / "ranks", 4, [REPLICAS])
    counting = [events for events in ranks if steps(events)[0].samples]
    assert len(counting) == 2, "one rank of each replica counts what all of its ranks work on"
    assert global_losses(counting) == pytest.approx([step.loss for step in steps(alone)], abs=1e-5)
    for one, *others in zip(steps(alone), *map(steps, counting), strict=True):
        assert (one.samples, one.tokens) == (8, 256)
        assert (sum(step.samples for step in others), sum(step.tokens for step in others)) == (8, 256)
    assert [reports(events) for events in ranks] == [[{"bubble_theory": pytest.approx(1 / 3)}]] * 4

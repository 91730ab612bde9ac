"""What has to be as in Megatron, so that its loss curves can be references, against what it does, written out."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from case_harness import CaseHarness, steps
from indexed_datasets import write_indexed
from megatron_oracle import LegacyGenerator, megatron_rates, megatron_samples

from flagperf_cases.llama2_70b.data import load_data
from flagperf_cases.llama2_70b.streams import TokenStream, read_index

CASE = CaseHarness("llama2_70b")

PREFIX = "tokens"


def documents(seed: int, count: int = 40) -> list[list[int]]:
    """Of all lengths, none included."""
    rng = random.Random(seed)
    return [[rng.randrange(64) for _ in range(rng.choice((0, 1, 3, 17, 40, 90)))] for _ in range(count)]


def trained(folder: Path, num_samples: int, **changes: Any) -> list[list[int]]:
    values = CASE.values(
        data__source="indexed",
        data__prefix=PREFIX,
        data__order="megatron",
        training__max_samples=num_samples,
        **changes,
    )
    samples = load_data(values, folder)
    return [samples[row] for row in samples.global_batch(0, num_samples)]


def test_the_written_out_generator_is_numpys() -> None:
    numpy = pytest.importorskip("numpy")
    for seed, size in ((1234, 1000), (0, 7), (4_294_967_295, 129)):
        numbers, expected = list(range(size)), numpy.arange(size)
        LegacyGenerator(seed).shuffle(numbers)
        numpy.random.RandomState(seed).shuffle(expected)
        assert numbers == expected.tolist()


@pytest.mark.parametrize("share", [0.3, 0.99, 1.0, 1.3, 1.81, 2.0, 2.5, 5.9])
def test_samples_come_in_megatrons_order(tmp_path: Path, share: float) -> None:
    """A part of an epoch, whole epochs, and a last epoch that is shuffled apart (up to 0.8 of it) or with others."""
    for seed in (1234, 7):
        texts = documents(seed)
        write_indexed(tmp_path / PREFIX, texts)
        sequence = 16
        num_samples = int(share * ((sum(map(len, texts)) - 1) // sequence))
        expected = megatron_samples(texts, sequence, num_samples, seed)[:num_samples]
        assert trained(tmp_path, num_samples, model__sequence=sequence, training__seed=seed) == expected


def test_the_real_documents_come_in_megatrons_order(shared_data: Path) -> None:
    prefix = shared_data / "megatron_indexed/openwebtext_gpt2tiny/meg-gpt2-openwebtext_text_document"
    index, ends = read_index(prefix), [0]
    for length in index.lengths:
        ends.append(ends[-1] + length)
    stream = TokenStream(index)
    texts = [stream.part(begin, end) for begin, end in itertools.pairwise(ends)]
    changes = {"data__prefix": prefix.name, "model__vocabulary": 5000, "model__sequence": 512}
    values = CASE.values(data__source="indexed", data__order="megatron", training__max_samples=3000, **changes)
    samples = load_data(values, prefix.parent)
    expected = megatron_samples(texts, 512, 3000, 1234)
    assert len(samples) == len(expected) > 3000
    assert [samples[row] for row in samples.global_batch(0, 3000)] == expected[:3000]


@pytest.mark.parametrize(
    ("max_samples", "max_steps", "last"),
    [(8, 40, 39), (3, 0, 0)],
    ids=["more steps", "less than one step, which still runs"],
)
def test_steps_beyond_the_samples_of_the_run_are_ordered_too(
    tmp_path: Path, max_samples: int, max_steps: int, last: int
) -> None:
    write_indexed(tmp_path / PREFIX, documents(3))
    more = CASE.values(
        data__source="indexed",
        data__prefix=PREFIX,
        data__order="megatron",
        training__max_samples=max_samples,
        training__max_steps=max_steps,
        training__accumulate=64,
    )
    training = more["training"]
    global_batch = training["batch_size"] * training["accumulate"]
    samples = load_data(more, tmp_path)
    assert len(samples.global_batch(last, global_batch)) == global_batch
    assert samples.sha256 != load_data({**more, "data": {**more["data"], "order": "samples"}}, tmp_path).sha256


@pytest.mark.run
@pytest.mark.parametrize(("num_steps", "global_batch", "train_samples"), [(554, 44, 24_414), (100, 1024, 102_400)])
def test_learning_rates_are_megatrons(num_steps: int, global_batch: int, train_samples: int) -> None:
    """Of the published configuration, and of the 100 steps of 1024 samples, whose warm-up is 1 % and so one step."""
    from flagperf_cases.llama2_70b.case import learning_rate

    training = CASE.manifest().values["training"]
    found = [
        learning_rate(
            step * global_batch,
            total=train_samples,
            warmup=training["warmup_fraction"] * train_samples,
            highest=training["learning_rate"],
            lowest=training["lowest_learning_rate"],
        )
        for step in range(num_steps)
    ]
    assert found == megatron_rates(num_steps, global_batch, train_samples)
    assert found[0] == 0 and max(found) == pytest.approx(1.5e-4, rel=1e-3)


@pytest.mark.run
def test_the_rate_of_a_step_goes_by_the_samples_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from flagperf_cases.llama2_70b import case

    asked: list[int] = []
    rate = case.learning_rate
    monkeypatch.setattr(
        case, "learning_rate", lambda consumed, **values: asked.append(consumed) or rate(consumed, **values)
    )
    found = steps(CASE.run(CASE.values(training__max_steps=3)))
    assert asked == [0, 8, 16]
    assert len(found) == 3


@pytest.mark.run
def test_initial_weights_have_megatrons_sizes() -> None:
    """Those that add to the hidden states are smaller the more layers there are: every layer adds two of them."""
    from flagperf_cases.decoder.layout import DecoderShape, Layout
    from flagperf_cases.decoder.parallel import Place, build_model

    shape = DecoderShape(layers=8, width=128, heads=4, kv_heads=2, ffn=256, vocabulary=512, sequence=8)
    model = build_model(shape, Place(Layout(), None), device="cpu", seed=1, std=0.02)
    for name, parameter in model.named_parameters():
        wanted = 0.02 / math.sqrt(2 * 8) if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        if "norm" in name:
            assert torch.equal(parameter, torch.ones(128)), name
        else:
            assert float(parameter.detach().std()) == pytest.approx(wanted, rel=0.05), name

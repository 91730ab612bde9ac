"""The same training in every layout as in one process: weights, losses, gradient norms, updates."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import decoder_ranks
import pytest
import torch

from flagperf_cases.decoder.layout import DecoderShape

pytestmark = pytest.mark.run

UNTIED: dict[str, Any] = {
    "layers": 4,
    "width": 16,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 24,
    "vocabulary": 32,
    "sequence": 8,
}
TIED = {**UNTIED, "layers": 3, "tied": True}
"""Three layers: uneven over two stages."""

SHAPES: dict[str, dict[str, Any]] = {"untied": UNTIED, "tied": TIED}
CLIP = 0.3
Item = tuple[str, dict[str, int]]
ITEMS: dict[int, list[Item]] = {
    2: [("untied", {"tp": 2}), ("untied", {"pp": 2}), ("untied", {"dp": 2}), ("tied", {"pp": 2})],
    4: [
        ("untied", {"tp": 2, "pp": 2}),
        ("untied", {"pp": 4}),
        ("tied", {"tp": 2, "dp": 2}),
        ("tied", {"pp": 2, "dp": 2}),
    ],
    8: [("tied", {"tp": 2, "pp": 2, "dp": 2})],
}


BF16 = [{"shape": UNTIED, "layout": layout, "clip": CLIP, "bf16": True} for layout in ({"tp": 2}, {"pp": 2})]
LARGE = {**UNTIED, "layers": 16, "width": 768, "heads": 12, "kv_heads": 4, "ffn": 2048, "vocabulary": 2048}
"""104 M parameters: large enough to be visible in the memory of a process."""
GROWTH = {"kind": "grow", "shape": LARGE, "layout": {"tp": 2, "pp": 2}}
REAL: dict[str, Any] = {
    "layers": 5,
    "width": 64,
    "heads": 8,
    "kv_heads": 4,
    "ffn": 172,
    "vocabulary": 512,
    "sequence": 64,
    "tied": True,
}
"""Five layers: three on the first of two stages, two on the second."""


def _work(item: Item) -> decoder_ranks.Work:
    name, layout = item
    return {"shape": SHAPES[name], "layout": layout, "clip": CLIP, "recompute": name == "tied"}


@pytest.fixture(scope="module")
def single() -> dict[str, dict[str, Any]]:
    """One process, with torch's own clipping, and no part of our engine but the model."""
    torch.set_num_threads(1)
    return {name: _plain_training(shape) for name, shape in SHAPES.items()}


def _plain_training(sizes: dict[str, Any]) -> dict[str, Any]:
    from torch.nn.functional import cross_entropy

    from flagperf_cases.decoder.model import Decoder, initialise, scaled_std

    shape = DecoderShape(**sizes)
    with torch.device("meta"):
        model = Decoder(shape)
    initialise(model, decoder_ranks.SEED, 0.2, "cpu", output_std=scaled_std(0.2, shape.layers))
    initial = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses, norms = [], []
    for step in range(decoder_ranks.NUM_STEPS):
        rows = decoder_ranks.batch(shape, step)
        loss = cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return {"losses": losses, "norms": norms, "initial": initial, "final": dict(model.named_parameters())}


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By world size, kind of work, item and rank. Starting a process group costs more than the work, so that there is
    one for each world size. Tests that share one stand next to each other."""
    folder: Path = tmp_path_factory.mktemp("ranks")

    @functools.cache
    def of(world_size: int) -> dict[str, Any]:
        work = _all_work(world_size, request)
        flat = [item for items in work.values() for item in items]
        found = iter(decoder_ranks.run_ranks(folder / str(world_size), world_size, flat))
        return {kind: [next(found) for _ in items] for kind, items in work.items()}

    return of


def _all_work(world_size: int, request: pytest.FixtureRequest) -> dict[str, list[decoder_ranks.Work]]:
    work: dict[str, list[decoder_ranks.Work]] = {"grow": [GROWTH] if world_size == 4 else []}  # it has to be first
    work["train"] = [_work(item) for item in ITEMS[world_size]]
    work["bf16"] = BF16 if world_size == 2 else []
    if world_size == 4:
        with contextlib.suppress(pytest.skip.Exception):
            weights = request.getfixturevalue("shared_data") / "tiny_llama_stories260K/hf/model.safetensors"
            work["read"] = [{"kind": "read", "shape": REAL, "layout": {"tp": 2, "pp": 2}, "weights": weights}]
    return work


@pytest.mark.full
def test_eight_ranks_train_as_one_process_does(answers: Any, single: Any) -> None:
    _check_training(8, answers(8)["train"], single)


def test_four_ranks_train_as_one_process_does(answers: Any, single: Any) -> None:
    _check_training(4, answers(4)["train"], single)


def test_real_weights_have_the_loss_and_gradients_of_transformers_at_tp2_pp2(shared_data: Path, answers: Any) -> None:
    loss, norm = _by_transformers(shared_data / "tiny_llama_stories260K/hf")
    (ranks,) = answers(4)["read"]
    assert [answer["loss"] for answer in ranks] == [None, None, *[pytest.approx(loss, abs=1e-5)] * 2]
    assert [answer["norm"] for answer in ranks] == pytest.approx([norm] * 4, rel=1e-5)


def test_no_rank_ever_holds_the_whole_model(answers: Any) -> None:
    (ranks,) = answers(4)["grow"]
    whole_bytes = 4 * DecoderShape(**LARGE).parameters
    for answer in ranks:
        assert answer["grown"] > 3.5 * answer["num_parameters"], "its own part is in memory"
        assert answer["grown"] <= 0.35 * whole_bytes


def test_two_ranks_train_as_one_process_does(answers: Any, single: Any) -> None:
    _check_training(2, answers(2)["train"], single)


def test_bf16_is_near_fp32(answers: Any, single: Any) -> None:
    for ranks in answers(2)["bf16"]:
        losses = global_losses(ranks)
        assert losses == pytest.approx(single["untied"]["losses"], rel=0.03)
        assert losses != pytest.approx(single["untied"]["losses"], abs=1e-6), "it computed in fp32"


def _check_training(world_size: int, answers: list[list[dict[str, Any]]], single: Any) -> None:
    """Losses, gradient norms, initial and final weights are those of one process."""
    for run in single.values():
        assert max(run["norms"]) > 2 * CLIP and min(run["norms"]) > CLIP, "clipping has to clip"
    for (name, layout), ranks in zip(ITEMS[world_size], answers, strict=True):
        expected = single[name]
        assert global_losses(ranks) == pytest.approx(expected["losses"], abs=1e-5), layout
        for answer in ranks:
            assert answer["norms"] == pytest.approx(expected["norms"], rel=1e-5), layout
        for when, tolerance in (("initial", 0.0), ("final", 1e-5)):
            found = [pair for answer in ranks for pair in answer[when]]
            assert {name for name, _ in found} >= set(expected["initial"])
            for name, value in found:
                wanted = expected[when][name if name in expected[when] else "embed_tokens.weight"]
                torch.testing.assert_close(value, wanted.detach(), rtol=0, atol=tolerance, msg=f"{layout} {name}")


def global_losses(ranks: list[dict[str, Any]]) -> list[float]:
    """The mean over replicas; all ranks of a replica's last stage report the same."""
    by_replica = {answer["dp_rank"]: answer["losses"] for answer in ranks if answer["losses"][0] is not None}
    return [sum(losses) / len(losses) for losses in zip(*by_replica.values(), strict=True)]


def _by_transformers(folder: Path) -> tuple[float, float]:
    from torch.nn.functional import cross_entropy
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = decoder_ranks.batch(DecoderShape(**REAL), 0)
    loss = cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    return float(loss.detach()), float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))

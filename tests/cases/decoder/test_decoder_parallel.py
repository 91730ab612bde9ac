"""The same training in every layout as in one process: weights, losses, gradient norms, updates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import decoder_ranks
import pytest

from flagperf_cases.decoder.shape import DecoderShape

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
"""104 M parameters: large enough to stand out of what the process has anyway."""


def _work(item: Item) -> decoder_ranks.Work:
    name, layout = item
    return {"shape": SHAPES[name], "layout": layout, "clip": CLIP, "recompute": name == "tied"}


@pytest.fixture(scope="module")
def single() -> dict[str, dict[str, Any]]:
    """One process, with torch's own clipping, and no part of our engine but the model."""
    import torch

    torch.set_num_threads(1)
    return {name: _plain_training(shape) for name, shape in SHAPES.items()}


def _plain_training(sizes: dict[str, Any]) -> dict[str, Any]:
    import torch
    from torch.nn.functional import cross_entropy

    from flagperf_cases.decoder.initial_weights import initialise
    from flagperf_cases.decoder.model import Decoder

    shape = DecoderShape(**sizes)
    with torch.device("meta"):
        model = Decoder(shape)
    initialise(model, decoder_ranks.SEED, 0.2, "cpu")
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
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """By world size, item and rank; one process group per world size, and not again where it failed."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    made: dict[int, Any] = {}

    def of(world_size: int) -> Any:
        if world_size not in made:
            work = [*map(_work, ITEMS[world_size]), *(BF16 if world_size == 2 else ())]
            made[world_size] = decoder_ranks.run_ranks(folder / str(world_size), world_size, work)
        return made[world_size]

    yield of


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_losses_norms_and_weights_are_those_of_one_process(world_size: int, answers: Any, single: Any) -> None:
    import torch

    assert all(max(run["norms"]) > 2 * CLIP and min(run["norms"]) > CLIP for run in single.values()), (
        "clipping has to clip"
    )
    for (name, layout), ranks in zip(ITEMS[world_size], answers(world_size), strict=False):
        expected = single[name]
        losses = global_losses(ranks)
        assert losses == pytest.approx(expected["losses"], abs=1e-5), layout
        for answer in ranks:
            assert answer["norms"] == pytest.approx(expected["norms"], rel=1e-5), layout
        for when, tolerance in (("initial", 0.0), ("final", 1e-5)):
            found = [pair for answer in ranks for pair in answer[when]]
            assert {name for name, _ in found} >= set(expected["initial"])
            for name, value in found:
                wanted = expected[when][name if name in expected[when] else "embed_tokens.weight"]
                torch.testing.assert_close(value, wanted.detach(), rtol=0, atol=tolerance, msg=f"{layout} {name}")


def global_losses(ranks: list[dict[str, Any]]) -> list[float]:
    """The mean over replicas; all ranks of a replica's last stage say the same."""
    by_replica = {answer["dp_rank"]: answer["losses"] for answer in ranks if answer["losses"][0] is not None}
    return [sum(losses) / len(losses) for losses in zip(*by_replica.values(), strict=True)]


REAL: dict[str, Any] = {
    "layers": 5, "width": 64, "heads": 8, "kv_heads": 4, "ffn": 172, "vocabulary": 512, "sequence": 64, "tied": True,
}  # fmt: skip
"""Five layers: three on the first of two stages, two on the second."""


def test_real_weights_have_the_loss_and_gradients_of_transformers_at_tp2_pp2(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "tiny_llama_stories260K/hf"
    loss, norm = _by_transformers(folder)
    work = {
        "kind": "read", "shape": REAL, "layout": {"tp": 2, "pp": 2}, "weights": folder / "model.safetensors"
    }  # fmt: skip
    (ranks,) = decoder_ranks.run_ranks(tmp_path / "ranks", 4, [work])
    assert [answer["loss"] for answer in ranks] == [None, None, *[pytest.approx(loss, abs=1e-5)] * 2]
    assert [answer["norm"] for answer in ranks] == pytest.approx([norm] * 4, rel=1e-5)


def _by_transformers(folder: Path) -> tuple[float, float]:
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = decoder_ranks.batch(DecoderShape(**REAL), 0)
    loss = cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    return float(loss.detach()), float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))


def test_bf16_is_near_fp32(answers: Any, single: Any) -> None:
    first = len(ITEMS[2])
    for ranks in answers(2)[first : first + len(BF16)]:
        losses = global_losses(ranks)
        assert losses == pytest.approx(single["untied"]["losses"], rel=0.03)
        assert losses != pytest.approx(single["untied"]["losses"], abs=1e-6), "it computed in fp32"


def test_no_rank_ever_holds_the_whole_model(tmp_path: Path) -> None:
    layouts: dict[int, dict[str, int]] = {1: {}, 4: {"tp": 2, "pp": 2}}
    grown = {
        world_size: decoder_ranks.run_ranks(
            tmp_path / str(world_size), world_size, [{"kind": "grow", "shape": LARGE, "layout": layout}]
        )[0]
        for world_size, layout in layouts.items()
    }
    alone = grown[1][0]["grown"]
    assert alone > 3.5 * grown[1][0]["count"], "the weights themselves are in memory"
    assert max(answer["grown"] for answer in grown[4]) <= 0.35 * alone

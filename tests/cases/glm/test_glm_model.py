"""The model, against a second one that is written out (glm_oracle) and against numbers made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import glm_oracle
import pytest
import torch
from case_harness import CaseHarness

from flagperf.metrics.flops import ModelFacts, exact
from flagperf_cases.glm.case import (
    Glm,
    attention_mask,
    choice_losses,
    matmul_parameters,
)

CASE = CaseHarness("glm")

LENGTH = 10
# Two candidates of one text: tokens, length of the text, index of the blank, targets. 20 starts an answer, 21 ends it.
FIRST = ([1, 7, 8, 3, 9, 0, 20, 5, 6], 6, 3, [5, 6, 21])
SECOND = ([1, 7, 8, 3, 9, 0, 20, 4], 6, 3, [4, 21])


def model_values(profile: str = "tiny", **changes: Any) -> SimpleNamespace:
    found = CASE.values(profile, **{f"model__{key}": value for key, value in changes.items()})
    return SimpleNamespace(**found["model"])


def small_model(**changes: Any) -> Any:
    """Weights large enough that every part of the model matters."""
    torch.manual_seed(3)
    shape = {"layers": 2, "width": 8, "heads": 2, "ffn": 16, "vocabulary": 24, "sequence": 16, **changes}
    model = Glm(model_values(**shape)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def padded(rows: list[list[int]], width: int, value: int = 0) -> Any:
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


@pytest.fixture
def batch() -> dict[str, Any]:
    """Both candidates, then the first again, which is no candidate; written down by hand."""
    inputs = {
        "tokens": padded([FIRST[0], SECOND[0], FIRST[0]], LENGTH),
        "positions": padded([[*range(6), 3, 3, 3], [*range(6), 3, 3], [*range(6), 3, 3, 3]], LENGTH),
        "blocks": padded([[0] * 6 + [1, 2, 3], [0] * 6 + [1, 2], [0] * 6 + [1, 2, 3]], LENGTH),
        "context": torch.tensor([6, 6, 6]),
        "answer_at": torch.tensor([[6, 7, 8]] * 3),
        "targets": torch.tensor([[5, 6, 21], [4, 21, 0], [5, 6, 21]]),
        "target_mask": torch.tensor([[1.0, 1, 1], [1, 1, 0], [1, 1, 1]]),
    }
    return {"inputs": inputs, "candidates": torch.tensor([[True, True, False]])}


def test_standard_has_the_published_number_of_parameters() -> None:
    standard = model_values("standard")
    with torch.device("meta"):
        model = Glm(standard)
    assert sum(parameter.numel() for parameter in model.parameters()) == 334_688_256
    assert sum(parameter.numel() for parameter in model.transformer.layers[0].parameters()) == 12_596_224
    assert model.transformer.position_embeddings.weight.shape == (513, 1024)
    assert matmul_parameters(standard) == 333_316_096


def test_flops_of_a_sequence_are_those_of_all_its_positions() -> None:
    facts = ModelFacts(334_688_256, matmul_parameters(model_values("standard")), 24, 16, 64, 512, causal=False)
    assert exact(facts) == 2_150_891_520
    assert exact(facts) * 512 == pytest.approx(1.101256e12, rel=1e-6)


def test_an_output_layer_that_is_not_computed_everywhere_is_not_counted() -> None:
    assert matmul_parameters(model_values("standard", logits="answers")) == 301_989_888


def test_text_is_seen_by_all_and_an_answer_only_from_behind() -> None:
    mask = attention_mask(torch.tensor([2, 3]), torch.zeros(2, 4))
    assert mask.shape == (2, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert mask[1, 0].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("logits", ["all", "answers"])
def test_scores_and_loss_are_those_of_the_written_out_model(batch: dict[str, Any], logits: str) -> None:
    model = small_model(logits=logits)
    scores = model(**batch["inputs"]).tolist()
    expected = [glm_oracle.score(model.state_dict(), 2, *each) for each in (FIRST, SECOND)]
    assert scores == pytest.approx([*expected, expected[0]], rel=1e-9)
    loss = choice_losses(model, batch)
    assert loss.tolist() == pytest.approx([glm_oracle.choice_loss(model.state_dict(), 2, [FIRST, SECOND])], rel=1e-9)


def test_gradients_are_the_slopes_of_the_written_out_model(batch: dict[str, Any]) -> None:
    """One entry of every weight, by central differences in float64."""
    model = small_model()
    (loss,) = choice_losses(model, batch)
    loss.backward()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    step = 1e-5
    for name, parameter in model.named_parameters():
        at = int(parameter.grad.abs().argmax())
        losses = []
        for change in (step, -step):
            moved = {**weights, name: weights[name].clone()}
            moved[name].view(-1)[at] += change
            losses.append(glm_oracle.choice_loss(moved, 2, [FIRST, SECOND]))
        slope = (losses[0] - losses[1]) / (2 * step)
        assert float(parameter.grad.view(-1)[at]) == pytest.approx(slope, rel=1e-4, abs=1e-7), name


def test_what_stands_behind_an_answer_changes_nothing(batch: dict[str, Any]) -> None:
    model = small_model()
    scores = model(**batch["inputs"])
    batch["inputs"]["tokens"][:, 9] = 17
    assert torch.equal(model(**batch["inputs"]), scores)


@pytest.mark.parametrize("change", [{"recompute": True}, {"logits": "answers"}])
def test_recomputing_and_fewer_logits_change_no_gradient(batch: dict[str, Any], change: dict[str, Any]) -> None:
    gradients = []
    for model in (small_model(recompute=False, logits="all"), small_model(**change)):
        choice_losses(model, batch).sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradients[1][name], gradient, rtol=1e-6, atol=1e-9), name


@pytest.mark.parametrize(
    ("logits", "training", "positions", "kind"),
    [
        ("all", True, LENGTH, torch.bfloat16),
        ("all", False, 3, torch.float32),
        ("answers", True, 3, torch.float32),
    ],
)
def test_the_published_log_softmax_is_of_every_position_in_the_type_of_the_weights(
    batch: dict[str, Any], monkeypatch: pytest.MonkeyPatch, logits: str, training: bool, positions: int, kind: Any
) -> None:
    computed: list[Any] = []
    log_softmax = torch.nn.functional.log_softmax
    monkeypatch.setattr(
        torch.nn.functional,
        "log_softmax",
        lambda *values, **options: computed.append(log_softmax(*values, **options)) or computed[-1],
    )
    model = small_model(logits=logits).bfloat16().train(training)
    scores = model(**batch["inputs"])
    assert [(tuple(each.shape), each.dtype) for each in computed] == [((3, positions, 24), kind)]
    assert scores.dtype == torch.float32


@pytest.mark.parametrize(("recompute", "expected"), [(True, [2, 4]), (False, [2, 2])])
def test_layers_are_computed_again_in_the_backward_pass(
    batch: dict[str, Any], recompute: bool, expected: list[int]
) -> None:
    model = small_model(recompute=recompute)
    computed: list[Any] = []
    for layer in model.transformer.layers:
        layer.register_forward_pre_hook(lambda module, _inputs: computed.append(module))
    loss = choice_losses(model, batch).sum()
    after_forward = len(computed)
    loss.backward()
    assert [after_forward, len(computed)] == expected


def test_output_layers_start_smaller_the_more_layers_there_are() -> None:
    torch.manual_seed(0)
    model = Glm(model_values(layers=2, width=64))
    layer = model.transformer.layers[1]
    assert float(layer.attention.query_key_value.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert float(layer.mlp.dense_4h_to_h.weight.detach().std()) == pytest.approx(0.01, rel=0.1)
    assert float(layer.attention.dense.bias.detach().abs().max()) == 0

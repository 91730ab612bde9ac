"""Steps in half precision: float32 masters and a loss scale that follows the gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flagperf.api import precision
from flagperf_cases.loss_scaling import LossScale, LossScalingUpdater, MasterWeights, PlainUpdater, make_updater


def scales(scale: LossScale, overflows: str) -> list[float]:
    """The value after every step; `x` is an overflow."""
    found = []
    for each in overflows:
        scale.update(overflowed=each == "x")
        found.append(scale.value)
    return found


def linear(dtype: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 4).to(dtype)


def sgd(rate: float) -> Any:
    return lambda named: torch.optim.SGD([parameter for _, parameter in named], lr=rate)


def scaling_updater(model: Any, rate: float = 0.1, max_norm: float = 0.0, value: float = 8.0) -> LossScalingUpdater:
    masters = MasterWeights(list(model.named_parameters()))
    return LossScalingUpdater(masters, sgd(rate)(masters.named), max_norm, LossScale(value, window=2, hysteresis=1))


@pytest.mark.parametrize(
    ("scale", "overflows", "expected"),
    [
        (LossScale(16.0, hysteresis=2), "xxx", [16, 8, 4]),  # the first is tolerated
        (LossScale(16.0, window=3, hysteresis=2), "xx...xx...", [16, 8, 8, 8, 16, 16, 8, 8, 8, 16]),  # and again
        (LossScale(16.0, window=3, hysteresis=1), "..x...", [16, 16, 8, 8, 8, 16]),  # the window begins again
        (LossScale(4.0, hysteresis=1, floor=1.0), "xxxx", [2, 1, 1, 1]),
    ],
)
def test_overflows_halve_the_scale_and_a_window_without_them_doubles_it(
    scale: LossScale, overflows: str, expected: list[float]
) -> None:
    assert scales(scale, overflows) == expected


def test_published_values_are_the_default() -> None:
    scale = LossScale()
    assert scale.value == 2.0**32
    assert scales(scale, "xx") == [2.0**32, 2.0**31]
    scales(scale, "." * 1000)
    assert scale.value == 2.0**32


def test_changes_too_small_for_half_precision_are_kept_in_the_masters() -> None:
    model = linear(torch.float16)
    torch.nn.init.ones_(model.weight)
    updater = scaling_updater(model, rate=1e-4)
    inputs = torch.ones(1, 4, dtype=torch.float16)
    weights = []
    for _ in range(8):
        updater.scale(model(inputs).float().sum()).backward()
        assert updater.step()
        weights.append(float(model.weight.detach()[0, 0]))
    assert weights[0] == 1.0  # 0.9999 is nearer to 1 than to the next smaller number
    assert weights[-1] == pytest.approx(1 - 8e-4, abs=3e-4)
    assert weights[-1] < 1.0


def test_the_scale_does_not_change_the_step() -> None:
    results = []
    for value in (1.0, 1024.0):
        model = linear(torch.float16)
        updater = scaling_updater(model, value=value)
        updater.scale(model(torch.ones(2, 4, dtype=torch.float16)).float().square().mean()).backward()
        assert updater.step()
        results.append(model.weight.detach().clone())
    assert torch.allclose(results[0], results[1], atol=1e-3)


def test_an_overflow_leaves_the_weights_and_lowers_the_scale() -> None:
    model = linear(torch.float16)
    updater = scaling_updater(model, value=2.0**20)
    before = model.weight.detach().clone()
    updater.scale(model(torch.ones(1, 4, dtype=torch.float16)).float().sum()).backward()
    assert not updater.step()
    assert torch.equal(model.weight, before)
    assert updater.loss_scale.value == 2.0**19
    assert all(parameter.grad is None for parameter in model.parameters())


def test_small_gradients_survive_by_their_scale() -> None:
    model = linear(torch.float16)
    updater = scaling_updater(model, rate=1e9, value=2.0**16)
    before = model.bias.detach().clone()
    updater.scale(model(torch.ones(1, 4, dtype=torch.float16)).float().sum() * 1e-9).backward()
    assert updater.step()
    assert torch.allclose(before - model.bias, torch.ones(4, dtype=torch.float16), atol=0.01)


@pytest.mark.parametrize("word", ["fp32", "fp16"])
def test_gradients_are_clipped_by_their_norm_over_all_weights(word: str) -> None:
    model = linear(getattr(torch, precision(word).storage))
    updater = make_updater(model.named_parameters(), precision(word), sgd(1.0), max_norm=0.5)
    if isinstance(updater, LossScalingUpdater):
        updater.loss_scale.value = 4.0
    before = torch.cat([parameter.detach().float().flatten() for parameter in model.parameters()])
    updater.scale(model(torch.ones(1, 4, dtype=model.weight.dtype)).float().sum() * 100).backward()
    assert updater.step()
    after = torch.cat([parameter.detach().float().flatten() for parameter in model.parameters()])
    assert float((after - before).norm()) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    ("word", "kind"), [("fp16", LossScalingUpdater), ("fp32", PlainUpdater), ("bf16", PlainUpdater)]
)
def test_masters_are_kept_where_the_precision_word_says_so(word: str, kind: type) -> None:
    model = linear(getattr(torch, precision(word).storage))
    assert isinstance(make_updater(model.named_parameters(), precision(word), sgd(0.1)), kind)


@pytest.mark.parametrize("word", ["fp16", "fp32"])
def test_parameters_that_are_not_trained_are_left_out(word: str) -> None:
    model = linear(getattr(torch, precision(word).storage))
    model.weight.requires_grad_(False)
    updater = make_updater(model.named_parameters(), precision(word), sgd(0.1))
    assert [group["params"][0].shape for group in updater.optimizer.param_groups] == [(4,)]
    assert len(updater.optimizer.param_groups[0]["params"]) == 1

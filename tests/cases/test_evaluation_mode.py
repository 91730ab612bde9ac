from __future__ import annotations

import pytest
import torch

from flagperf_cases.models import evaluation_mode


@pytest.mark.parametrize("mode", [True, False])
def test_a_model_is_in_its_own_mode_again_after_an_evaluation(mode: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.5)).train(mode)
    with evaluation_mode(model):
        assert torch.equal(model(torch.ones(100)), torch.ones(100))
        assert not torch.is_grad_enabled()
    assert [module.training for module in model.modules()] == [mode, mode]
    assert torch.is_grad_enabled()


class Stubborn(torch.nn.Module):
    def train(self, mode: bool = True) -> Stubborn:
        return self


def test_a_part_that_stays_in_training_mode_is_an_error() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Stubborn())
    with pytest.raises(RuntimeError, match="evaluated while 1 is in training mode"), evaluation_mode(model):
        pass

"""Gradients are scaled wherever float16 computes, by autocast as well, which this CPU's accelerate does not do."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flagperf.api import precision  # noqa: E402
from flagperf.worker.accelerator import GradientScaler  # noqa: E402
from flagperf_cases.llama2_7b_finetune.case import Trainer  # noqa: E402


class OneWeight(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, input_ids: Any, use_cache: bool) -> Any:
        return SimpleNamespace(logits=self.weight * input_ids.unsqueeze(-1).float())


def trainer(name: str) -> Trainer:
    accelerator = SimpleNamespace(prepare=lambda model: model, unwrap_model=lambda model: model)
    step = SimpleNamespace(done=lambda **_said: None)
    context: Any = SimpleNamespace(
        precision=precision(name),
        device="cpu",
        accelerator=lambda: accelerator,
        gradient_scaler=lambda: GradientScaler("cpu", enabled=precision(name).compute == "float16"),
        step=lambda: nullcontext(step),
        config=SimpleNamespace(
            training=SimpleNamespace(learning_rate=0.1, weight_decay=0.0, decay=1.0),
            model=SimpleNamespace(frozen=False),
        ),
    )
    return Trainer(context, OneWeight())


def batch(scale: float) -> dict[str, Any]:
    ids = torch.tensor([[1, 2, 3]])
    counts = {"samples": 1, "tokens": 3, "padded_tokens": 0}
    return {"input_ids": ids, "labels": torch.zeros_like(ids), "scale": scale, **counts}


@pytest.mark.parametrize(
    ("name", "is_scaled"),
    [("fp32", False), ("tf32", False), ("bf16", False), ("amp-bf16", False), ("fp16", True), ("amp-fp16", True)],
)
def test_a_step_that_overflows_is_left_out_where_gradients_are_scaled(name: str, is_scaled: bool) -> None:
    made = trainer(name)
    made.step([batch(float("inf"))])
    assert bool(torch.isfinite(made.model.weight).all()) == is_scaled

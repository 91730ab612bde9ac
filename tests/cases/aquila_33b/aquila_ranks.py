"""What the ranks of aquila_33b's tests do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from flagperf.api import precision
from flagperf_cases.decoder.layout import DecoderShape, Layout


@dataclass(frozen=True)
class Question:
    folder: Path
    """With a checkpoint in Megatron's layout."""
    shape: DecoderShape
    tp: int
    tokens: list[list[int]]


def logits_of(question: Question) -> Any:
    """This rank's part of the vocabulary. Ranks are as many as at the largest TP: at another one they are several
    models, side by side."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    from flagperf_cases.aquila_33b.case import load_model
    from flagperf_cases.decoder.parallel import Place

    sizes = (1, distributed.get_world_size() // question.tp, question.tp)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("pp", "dp", "tp"))
    place = Place(Layout(tp=question.tp), mesh, tp_rank=mesh.get_local_rank("tp"))
    context: Any = SimpleNamespace(
        config=SimpleNamespace(model=SimpleNamespace(checkpoint="megatron")),
        precision=precision("fp32"),
        device="cpu",
        data_dir=question.folder,
    )
    model = load_model(context, question.shape, place)
    with torch.inference_mode():
        return model(torch.tensor(question.tokens)).clone().numpy()

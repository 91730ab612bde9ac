"""One layer of the published model, from shards as they are published to scores, in a process of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from aquila_checkpoints import write_megatron
from bf16_units import Bf16Units
from case_harness import CaseHarness, only_report

from flagperf_cases.aquila_33b.checkpoint import check_checkpoint
from flagperf_cases.decoder.layout import DecoderShape, shape_of
from flagperf_cases.decoder.model import Decoder

CASE = CaseHarness("aquila_33b")

NUM_SHARDS, PADDED_VOCABULARY = 2, 100_096
NUM_SAMPLES = 1
PATTERN = 1_000_003
"""Random numbers that are repeated: drawing as many as there are weights would take longer than all the rest. A prime,
so that no two rows are alike."""


def score_lambada(folder: Path) -> dict[str, Any]:
    """The folder has texts and tokenizer; the weights are put beside them."""
    config = CASE.values("standard", parallel__tp=1, model__layers=1, data__samples=NUM_SAMPLES)
    shape = shape_of(config["model"])
    write_megatron(folder, made_up_model(shape), NUM_SHARDS, PADDED_VOCABULARY)
    files = check_checkpoint(folder, "megatron", shape)
    with Bf16Units() as units:
        events = CASE.run(config, folder)
    return {
        **only_report(events),
        "products": units.num_products,
        "precision": config["precision"],
        "parameters": shape.parameters,
        "shards": len(files) - 1,
    }


def made_up_model(shape: DecoderShape) -> Decoder:
    with torch.device("meta"):
        model = Decoder(shape).to(torch.bfloat16)
    model.to_empty(device="cpu")
    pattern = (0.02 * torch.randn(PATTERN, generator=torch.Generator().manual_seed(3))).bfloat16()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1)
            else:
                repeated = pattern.repeat(math.ceil(parameter.numel() / PATTERN))
                parameter.copy_(repeated[: parameter.numel()].view_as(parameter))
    return model

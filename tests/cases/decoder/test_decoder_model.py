"""The decoder against transformers' Llama, and its published sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from flagperf_cases.decoder.layout import DecoderShape

LLAMA2_70B = DecoderShape(80, 8192, 64, 8, 28_672, 32_000, 4096)
AQUILA_33B = DecoderShape(60, 6144, 48, 8, 24_576, 100_008, 4096)


@pytest.mark.run
@pytest.mark.parametrize(
    ("shape", "parameters", "matmul"),
    [(LLAMA2_70B, 68_976_648_192, 68_713_185_280), (AQUILA_33B, 33_693_554_688, 33_078_362_112)],
)
def test_published_models_have_their_published_parameters(shape: DecoderShape, parameters: int, matmul: int) -> None:
    from flagperf_cases.decoder.model import Decoder

    with torch.device("meta"):
        model = Decoder(shape)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters == shape.parameters
    assert shape.matmul_parameters == matmul


@pytest.mark.run
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_logits_and_gradients_are_those_of_transformers(tied: bool, kv_heads: int) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=88,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        vocab_size=61,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    theirs = LlamaForCausalLM(config).float()
    _vary_norms(theirs)
    shape = DecoderShape(3, 32, 4, kv_heads, 88, 61, 64, tied=tied)
    _compare(shape, theirs, torch.randint(0, 61, (2, 40)), with_gradients=True)


@pytest.mark.run
def test_logits_on_real_weights_are_those_of_transformers(shared_data: Path) -> None:
    from transformers import LlamaForCausalLM

    theirs = LlamaForCausalLM.from_pretrained(shared_data / "tiny_llama_stories260K/hf", dtype=torch.float32)
    shape = DecoderShape(5, 64, 8, 4, 172, 512, 512, tied=True)
    torch.manual_seed(1)
    _compare(shape, theirs, torch.randint(0, 512, (2, 100)), with_gradients=False)


def _vary_norms(model: Any) -> None:
    """Norms that are all ones would hide where they are applied."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)


def _compare(shape: DecoderShape, theirs: Any, tokens: Any, with_gradients: bool) -> None:
    from flagperf_cases.decoder.model import Decoder

    ours = Decoder(shape)
    weights = {name.removeprefix("model."): value for name, value in theirs.state_dict().items()}
    ours.load_state_dict(weights)
    expected, logits = theirs(tokens).logits, ours(tokens)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5 * max(1.0, float(expected.detach().abs().max())))
    if not with_gradients:
        return
    expected.square().mean().backward()
    logits.square().mean().backward()
    expected_gradients = {name.removeprefix("model."): p.grad for name, p in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected_gradients[name], rtol=1e-4, atol=1e-5, msg=name)

"""GLM written down a second time: one sequence, one position, one head at a time, in float64, without padding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

Weights = Mapping[str, torch.Tensor]


def choice_loss(weights: Weights, heads: int, filled: Sequence[tuple[list[int], int, int, list[int]]]) -> float:
    """Of candidates whose first is the right one; each is (tokens, length of the text, index of the blank, targets)."""
    scores = [score(weights, heads, *each) for each in filled]
    return math.log(sum(math.exp(each - scores[0]) for each in scores))


def score(weights: Weights, heads: int, tokens: list[int], context: int, blank: int, targets: list[int]) -> float:
    w = {name: tensor.double() for name, tensor in weights.items()}
    states = [_embedded(w, token, *_place(index, context, blank)) for index, token in enumerate(tokens)]
    for number in range(sum(name.endswith("mlp.dense_h_to_4h.bias") for name in w)):
        prefix = f"transformer.layers.{number}."
        layer = {name.removeprefix(prefix): tensor for name, tensor in w.items() if name.startswith(prefix)}
        states = _layer(layer, heads, states, context)
    total = 0.0
    for offset, target in enumerate(targets):
        state = _norm(w, "transformer.final_layernorm", states[context + offset])
        logits = [float(row @ state) for row in w["word_embeddings.weight"]]
        total += logits[target] - math.log(sum(map(math.exp, logits)))
    return total


def _place(index: int, context: int, blank: int) -> tuple[int, int]:
    return (index, 0) if index < context else (blank, index - context + 1)


def _embedded(w: Weights, token: int, position: int, block: int) -> torch.Tensor:
    places = w["transformer.position_embeddings.weight"], w["transformer.block_position_embeddings.weight"]
    return w["word_embeddings.weight"][token] + places[0][position] + places[1][block]


def _layer(w: Weights, heads: int, states: list[torch.Tensor], context: int) -> list[torch.Tensor]:
    normed = [_norm(w, "input_layernorm", state) for state in states]
    mixed = _attention(w, heads, normed, context)
    states = [state + each for state, each in zip(states, mixed, strict=True)]
    return [state + _mlp(w, _norm(w, "post_attention_layernorm", state)) for state in states]


def _attention(w: Weights, heads: int, states: list[torch.Tensor], context: int) -> list[torch.Tensor]:
    width = len(states[0])
    size = width // heads
    projected = [_linear(w, "attention.query_key_value", state) for state in states]
    mixed = []
    for row, own in enumerate(projected):
        visible = [column for column in range(len(states)) if column < context or column <= row]
        parts = []
        for head in range(heads):
            at = slice(head * size, (head + 1) * size)
            query = own[:width][at]
            shares = [math.exp(float(query @ projected[c][width : 2 * width][at]) / math.sqrt(size)) for c in visible]
            values = [projected[c][2 * width :][at] for c in visible]
            parts.append(sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares))
        mixed.append(_linear(w, "attention.dense", torch.cat(parts)))
    return mixed


def _mlp(w: Weights, state: torch.Tensor) -> torch.Tensor:
    x = _linear(w, "mlp.dense_h_to_4h", state)
    inner = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return _linear(w, "mlp.dense_4h_to_h", inner)


def _linear(w: Weights, name: str, state: torch.Tensor) -> torch.Tensor:
    return w[f"{name}.weight"] @ state + w[f"{name}.bias"]


def _norm(w: Weights, name: str, state: torch.Tensor) -> torch.Tensor:
    centred = state - state.mean()
    return centred / torch.sqrt((centred**2).mean() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]

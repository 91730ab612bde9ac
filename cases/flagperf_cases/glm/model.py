"""The GLM of 2021: a pre-norm transformer with bidirectional attention over a text with a blank, which it fills from
left to right. Parameters have the names of the published checkpoint.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

INIT_STD = 0.02


class Glm(nn.Module):  # type: ignore[misc]
    """Scores sequences: the log-probability of each one's answer, given its text."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(values.vocabulary, values.width)
        self.transformer = Transformer(values)
        self.logits = values.logits
        self.apply(self._initialise)
        for layer in self.transformer.layers:
            for output in (layer.attention.dense, layer.mlp.dense_4h_to_h):
                nn.init.normal_(output.weight, std=INIT_STD / math.sqrt(2 * values.layers))

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INIT_STD)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        blocks: torch.Tensor,
        context: torch.Tensor,
        answer_at: torch.Tensor,
        targets: torch.Tensor,
        target_mask: torch.Tensor,
    ) -> torch.Tensor:
        """One score per sequence, summed in float32 or better.

        `tokens`, `positions`, `blocks` are [sequences, length]; `context` is the number of positions that are visible
        from everywhere; `answer_at`, `targets` and `target_mask` are [sequences, longest answer].
        """
        states = self.transformer(self.word_embeddings(tokens), positions, blocks, attention_mask(context, tokens))
        wide = torch.promote_types(states.dtype, torch.float32)
        return (self._log_probabilities(states, answer_at, targets).to(wide) * target_mask).sum(-1)

    def _log_probabilities(self, states: torch.Tensor, answer_at: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each target. The output layer is tied to the word embedding. With `logits` "all", training computes it
        and its log-softmax at every position and in the type of the weights, as the original does: its memory and time
        are part of what is measured."""
        sequences = torch.arange(len(states), device=states.device).unsqueeze(-1)
        if self.training and self.logits == "all":
            logits = functional.linear(states, self.word_embeddings.weight)
            return functional.log_softmax(logits, dim=-1)[sequences, answer_at, targets]
        logits = functional.linear(states[sequences, answer_at], self.word_embeddings.weight)
        wide = torch.promote_types(logits.dtype, torch.float32)
        return functional.log_softmax(logits, dim=-1, dtype=wide).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def attention_mask(context: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[sequences, 1, from, to]: the text is visible from everywhere, an answer token only from later positions."""
    index = torch.arange(tokens.shape[1], device=tokens.device)
    causal = index.unsqueeze(0) <= index.unsqueeze(1)
    text = index < context.unsqueeze(-1)
    return (causal | text.unsqueeze(1)).unsqueeze(1)


class Transformer(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.position_embeddings = nn.Embedding(values.sequence + 1, values.width)
        self.block_position_embeddings = nn.Embedding(values.sequence + 1, values.width)
        self.dropout = nn.Dropout(values.dropout)
        self.layers = nn.ModuleList(Layer(values) for _ in range(values.layers))
        self.final_layernorm = nn.LayerNorm(values.width)
        self.recompute = values.recompute

    def forward(
        self, states: torch.Tensor, positions: torch.Tensor, blocks: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        placed = states + self.position_embeddings(positions) + self.block_position_embeddings(blocks)
        states = self.dropout(placed)
        for layer in self.layers:
            if self.recompute and self.training:
                states = checkpoint(layer, states, mask, use_reentrant=False)
            else:
                states = layer(states, mask)
        return self.final_layernorm(states)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.input_layernorm = nn.LayerNorm(values.width)
        self.attention = Attention(values)
        self.post_attention_layernorm = nn.LayerNorm(values.width)
        self.mlp = Mlp(values)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        states = states + self.attention(self.input_layernorm(states), mask)
        return states + self.mlp(self.post_attention_layernorm(states))


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.heads = values.heads
        self.query_key_value = nn.Linear(values.width, 3 * values.width)
        self.dense = nn.Linear(values.width, values.width)
        self.attention_dropout = values.attention_dropout
        self.dropout = nn.Dropout(values.dropout)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        by_head = self.query_key_value(states).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        query, key, value = by_head.unbind(2)
        rate = self.attention_dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)
        return self.dropout(self.dense(mixed.transpose(1, 2).flatten(2)))


class Mlp(nn.Module):  # type: ignore[misc]
    def __init__(self, values: Any) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(values.width, values.ffn)
        self.dense_4h_to_h = nn.Linear(values.ffn, values.width)
        self.dropout = nn.Dropout(values.dropout)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        inner = functional.gelu(self.dense_h_to_4h(states), approximate="tanh")
        return self.dropout(self.dense_4h_to_h(inner))


def matmul_parameters(values: Any) -> int:
    """Weights of the matrix products over all positions; the tied output layer counts only if computed at all."""
    head = values.vocabulary * values.width if values.logits == "all" else 0
    return int(values.layers * (4 * values.width**2 + 2 * values.width * values.ffn) + head)

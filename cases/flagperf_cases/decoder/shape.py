"""The dimensions of a decoder, and the parameter counts that follow from them. Importable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DecoderShape:
    layers: int
    width: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    tied: bool = False
    norm_eps: float = 1e-5
    rope_base: float = 10_000.0

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def layer_matmul_parameters(self) -> int:
        """Query and output, key and value, and the three of the feed-forward."""
        return 2 * self.width * self.width + 2 * self.width * self.kv_width + 3 * self.width * self.ffn

    @property
    def layer_parameters(self) -> int:
        return self.layer_matmul_parameters + 2 * self.width

    @property
    def vocabulary_parameters(self) -> int:
        """Of the embedding, and of the head as well if the two are not tied."""
        return self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        tables = self.vocabulary_parameters * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + tables + self.width

    @property
    def matmul_parameters(self) -> int:
        return self.layers * self.layer_matmul_parameters + self.vocabulary_parameters


def sections(config: Any) -> dict[str, dict[str, Any]]:
    """A context's values as mappings, which is how check_files and estimate get them. So both can share code."""
    return {name: vars(section) for name, section in vars(config).items() if hasattr(section, "__dict__")}


def shape_of(model: Any) -> DecoderShape:
    """From the `model` values of a case, as a mapping."""
    return DecoderShape(
        layers=model["layers"],
        width=model["width"],
        heads=model["heads"],
        kv_heads=model["kv_heads"],
        ffn=model["ffn"],
        vocabulary=model["vocabulary"],
        sequence=model["sequence"],
        tied=model.get("tied", False),
        norm_eps=model.get("norm_eps", 1e-5),
        rope_base=model.get("rope_base", 10_000.0),
    )

"""Describe the dimensions of a decoder, and how it is spread over devices: tensor, pipeline and data parallel.

Importable without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flagperf.errors import BadInput


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
        """Count query and output, key and value, and the three of the feed-forward."""
        return 2 * self.width * self.width + 2 * self.width * self.kv_width + 3 * self.width * self.ffn

    @property
    def layer_parameters(self) -> int:
        return self.layer_matmul_parameters + 2 * self.width

    @property
    def vocabulary_parameters(self) -> int:
        """Count the embedding, which the head has as well if the two are not tied."""
        return self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        tables = self.vocabulary_parameters * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + tables + self.width

    @property
    def matmul_parameters(self) -> int:
        return self.layers * self.layer_matmul_parameters + self.vocabulary_parameters


def sections(config: Any) -> dict[str, dict[str, Any]]:
    """Return a context's values as mappings, which is how check_files and estimate get them. So both can share code."""
    return {name: vars(section) for name, section in vars(config).items() if hasattr(section, "__dict__")}


def shape_of(model: Any) -> DecoderShape:
    """Read the `model` values of a case, given as a mapping."""
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


# --- parallelism ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Ranks are numbered with tensor parallel fastest, then data, then pipeline: tensor parallel ranks are neighbours
    and stay inside a node."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    stages: tuple[int, ...] = ()
    """Layers of each pipeline stage. Empty: evenly, with earlier stages taking the remainder."""

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp

    def stage_layers(self, num_layers: int) -> list[range]:
        """Return the layers of each stage."""
        even = [num_layers // self.pp + (stage < num_layers % self.pp) for stage in range(self.pp)]
        sizes = list(self.stages) or even
        starts = [sum(sizes[:stage]) for stage in range(self.pp)]
        return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def layout_of(parallel: Any) -> Layout:
    """Read the `parallel` values of a case, given as a mapping."""
    return Layout(parallel["tp"], parallel["pp"], parallel["dp"], tuple(parallel.get("stages", ())))


def check_layout(shape: DecoderShape, layout: Layout, num_micro_batches: int) -> None:
    """Raise BadInput with the reason if the model cannot be spread like this."""
    _check_divides("model.heads", shape.heads, "model.width", shape.width)
    _check_divides("model.kv_heads", shape.kv_heads, "model.heads", shape.heads)
    if shape.head_size % 2:
        raise BadInput(
            f"model.width / model.heads = {shape.head_size} is odd, and rotary positions need pairs; "
            "choose them so that it is even"
        )
    for name in ("heads", "kv_heads", "ffn", "vocabulary", "sequence"):
        _check_divides("parallel.tp", layout.tp, f"model.{name}", getattr(shape, name))
    if layout.pp > shape.layers:
        raise BadInput(
            f"parallel.pp={layout.pp} stages need a layer each, and model.layers is {shape.layers}; use fewer stages"
        )
    if layout.stages and len(layout.stages) != layout.pp:
        raise BadInput(
            f"parallel.stages lists {len(layout.stages)} stages, and parallel.pp is {layout.pp}; list as many"
        )
    if not all(type(size) is int and size > 0 for size in layout.stages):
        raise BadInput(f"parallel.stages lists the layers of each stage, each at least 1; got {list(layout.stages)}")
    if layout.stages and sum(layout.stages) != shape.layers:
        raise BadInput(
            f"parallel.stages has {sum(layout.stages)} layers in all, and model.layers is {shape.layers}; "
            "the two have to be equal"
        )
    if layout.pp > 1 and num_micro_batches < layout.pp:
        raise BadInput(
            f"a pipeline of {layout.pp} stages needs at least {layout.pp} micro-batches per step; "
            f"training.accumulate is {num_micro_batches}"
        )


def _check_divides(divisor_name: str, divisor: int, name: str, value: int) -> None:
    if divisor < 1 or value % divisor:
        raise BadInput(f"{divisor_name}={divisor} does not divide {name}={value}; choose one that does")


def bubble(pp: int, num_micro_batches: int) -> float:
    """Return the theoretical fraction of a 1F1B step in which a stage waits for others."""
    return (pp - 1) / (num_micro_batches + pp - 1)

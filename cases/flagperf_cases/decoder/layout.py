"""How a decoder is spread over devices: tensor, pipeline and data parallel. Importable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flagperf.errors import BadInput
from flagperf_cases.decoder.shape import DecoderShape


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
        """The layers of each stage."""
        even = [num_layers // self.pp + (stage < num_layers % self.pp) for stage in range(self.pp)]
        sizes = list(self.stages) or even
        starts = [sum(sizes[:stage]) for stage in range(self.pp)]
        return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def layout_of(parallel: Any) -> Layout:
    """From the `parallel` values of a case, as a mapping."""
    return Layout(parallel["tp"], parallel["pp"], parallel["dp"], tuple(parallel.get("stages", ())))


def check_layout(shape: DecoderShape, layout: Layout, num_micro_batches: int) -> None:
    """Raises BadInput with the reason if the model cannot be spread like this."""
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
    _check_stages(shape, layout)
    if layout.pp > 1 and num_micro_batches < layout.pp:
        raise BadInput(
            f"a pipeline of {layout.pp} stages needs at least {layout.pp} micro-batches per step; "
            f"training.accumulate is {num_micro_batches}"
        )


def _check_divides(divisor_name: str, divisor: int, name: str, value: int) -> None:
    if divisor < 1 or value % divisor:
        raise BadInput(f"{divisor_name}={divisor} does not divide {name}={value}; choose one that does")


def _check_stages(shape: DecoderShape, layout: Layout) -> None:
    if not layout.stages:
        return
    if len(layout.stages) != layout.pp:
        raise BadInput(
            f"parallel.stages lists {len(layout.stages)} stages, and parallel.pp is {layout.pp}; list as many"
        )
    if not all(type(size) is int and size > 0 for size in layout.stages):
        raise BadInput(f"parallel.stages lists the layers of each stage, each at least 1; got {list(layout.stages)}")
    if sum(layout.stages) != shape.layers:
        raise BadInput(
            f"parallel.stages has {sum(layout.stages)} layers in all, and model.layers is {shape.layers}; "
            "the two have to be equal"
        )


def bubble(pp: int, num_micro_batches: int) -> float:
    """The theoretical fraction of a 1F1B step in which a stage waits for others."""
    return (pp - 1) / (num_micro_batches + pp - 1)

"""Declare an operator, which is measured, in a few lines. Importable without torch; docs/add-an-operator.md.

A shape is a table of named sizes and options, such as {"m": 4096, "n": 4096, "k": 4096}. `operands`, `outputs`, `flops`
and the like get it as keyword arguments and say what follows from it, so everything but the values themselves, memory
included, is known before a tensor is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from flagperf_cases.operators.tolerance import EXACT, Rounding, Rule

SHAPE_CLASSES = ("published", "model", "odd", "strided", "tiny")
"""published: of the published results. model: of real models. odd: no multiple of 16. strided: not contiguous, or
broadcast. tiny: small, to see that everything works."""

Direction = Literal["forward", "backward"]

FLOATS = ("fp32", "fp16", "bf16")
TORCH_NAMES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "bool": "bool",
}
ELEMENT_BYTES = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "bool": 1,
}

Sizes = Mapping[str, Any]
Shapes = Mapping[str, tuple[Sizes, ...]]
"""Class of shapes -> shapes."""


class Operand(msgspec.Struct, frozen=True):
    """Describes a tensor that an operator reads or writes."""

    shape: tuple[int, ...]
    dtype: str = ""
    """"" is the dtype of the row."""
    draw: str = "normal"
    """How its values are drawn: see draws.draw. Of an output: without meaning."""
    high: int = 0
    """Of draws of whole numbers: all are below it."""
    layout: str = "contiguous"
    """How it lies in memory: see draws.make_tensor."""
    has_gradient: bool = True
    """Whether backward gives a gradient of it. Only of operands in the dtype of the row."""

    def dtype_of(self, row_dtype: str) -> str:
        return self.dtype or row_dtype

    def num_bytes(self, row_dtype: str) -> int:
        """Count the elements that are read: a row that is broadcast is read once."""
        shape = self.shape[1:] if self.layout == "broadcast" else self.shape
        return math.prod(shape) * ELEMENT_BYTES[self.dtype_of(row_dtype)]

    def held_bytes(self, row_dtype: str) -> int:
        """Count its memory, with the gaps of its layout."""
        return self.num_bytes(row_dtype) * (2 if self.layout == "every_other" else 1)


class Cut(msgspec.Struct, frozen=True):
    """Says that output and some operands can be cut along one dimension into parts that belong together: row i of a
    product needs row i of the first operand only. Of a large output the check then takes some of the parts."""

    operands: tuple[int, ...] = (0,)
    dim: int = 0


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    group: str
    shapes: Shapes
    operands: Callable[..., tuple[Operand, ...]]
    """Sizes -> what the call gets."""
    call: Callable[..., Any]
    """(*tensors, **options) -> a tensor or a tuple of tensors. It issues the work and does not wait for it."""
    outputs: Callable[..., tuple[Operand, ...]] | None = None
    """Sizes -> shape and dtype of what the call gives. None: like the first operand."""
    options: tuple[str, ...] = ()
    """The sizes that `call` gets as keyword arguments."""
    dtypes: tuple[str, ...] = FLOATS
    reference: Callable[..., Any] | None = None
    """The same on the host in float64, with the same arguments. None: `call` itself."""
    widens: bool = True
    """The reference gets floats as float64. False: it gets them as they are, and widens by itself or needs not."""
    rule: Rule = EXACT
    """When an output is right."""
    backward_rule: Rule | None = None
    """None: there is no backward to measure."""
    terms: Callable[..., int] | None = None
    """Sizes -> how many numbers each sum has, for the rules. None: there are no sums."""
    backward_terms: Callable[..., int] | None = None
    """None: like forward."""
    flops: Callable[..., int] | None = None
    """Sizes -> operations of one call. None: it is limited by memory, and its figure is GB/s."""
    backward_flops: float = 2.0
    """Times the forward's."""
    traffic: Callable[..., int] | None = None
    """(element bytes, sizes) -> the least bytes that forward moves. None: all operands and outputs once."""
    backward_traffic: Callable[..., int] | None = None
    """None: output gradients, operands and operands' gradients once."""
    cut: Cut | None = None
    mutates: bool = False
    """The call changes its operands: they are restored before every call."""
    is_random: bool = False
    """Every call gives other values, and `rule` gets the operands in place of a reference."""

    @property
    def figure(self) -> Literal["TFLOPS", "GB/s"]:
        return "TFLOPS" if self.flops else "GB/s"

    @property
    def directions(self) -> tuple[Direction, ...]:
        return ("forward", "backward") if self.backward_rule else ("forward",)

    def outputs_of(self, sizes: Sizes) -> tuple[Operand, ...]:
        if self.outputs:
            return self.outputs(**sizes)
        return (Operand(self.operands(**sizes)[0].shape),)

    def options_of(self, sizes: Sizes) -> dict[str, Any]:
        return {name: sizes[name] for name in self.options if name in sizes}

    def gradients_of(self, sizes: Sizes) -> tuple[int, ...]:
        """Return which operands have a gradient."""
        return tuple(
            index for index, operand in enumerate(self.operands(**sizes)) if operand.has_gradient and not operand.dtype
        )

    def terms_of(self, sizes: Sizes, direction: Direction) -> int:
        found = (self.backward_terms if direction == "backward" else None) or self.terms
        return found(**sizes) if found else 1

    def work(self, sizes: Sizes, dtype: str, direction: Direction) -> tuple[int, int]:
        """Return the FLOPs and the least bytes of one call."""
        flops = self.flops(**sizes) if self.flops else 0
        traffic = self.traffic
        if direction == "backward":
            flops, traffic = int(flops * self.backward_flops), self.backward_traffic
        if traffic:
            return flops, traffic(ELEMENT_BYTES[dtype], **sizes)
        operands = self.operands(**sizes)
        moved = [*operands, *self.outputs_of(sizes)]
        if direction == "backward":
            moved += [operands[index] for index in self.gradients_of(sizes)]
        return flops, sum(each.num_bytes(dtype) for each in moved)

    def memory_bytes(self, sizes: Sizes, dtype: str, direction: Direction) -> int:
        """Count what the tensors of a row take on the device, without what the operator itself needs on the way."""
        operands = self.operands(**sizes)
        outputs = sum(each.held_bytes(dtype) for each in self.outputs_of(sizes))
        held = sum(each.held_bytes(dtype) for each in operands)
        if self.mutates:
            held *= 2
        if direction == "backward":
            held += outputs + sum(operands[index].held_bytes(dtype) for index in self.gradients_of(sizes))
        return held + outputs

    def check_bytes(self, sizes: Sizes, dtype: str, direction: Direction) -> int:
        """Count what the check of an output takes on the host, about: float64 copies of all that is not cut."""
        operands, outputs = self.operands(**sizes), self.outputs_of(sizes)
        is_cut = self.cut is not None and direction == "forward"
        whole = [
            each for index, each in enumerate(operands) if not (is_cut and self.cut and index in self.cut.operands)
        ]
        whole += [] if is_cut else [*outputs] * 2
        if direction == "backward":
            whole += [operands[index] for index in self.gradients_of(sizes)] * 2
        element = 8 if self.widens or direction == "backward" else ELEMENT_BYTES[dtype]
        return sum(math.prod(each.shape) for each in whole) * element


def shape_text(sizes: Sizes) -> str:
    """Write a shape: `m=4096 n=4096 k=4096 transposed`."""
    words = []
    for name, value in sizes.items():
        if isinstance(value, bool):
            words += [name] if value else []
        elif isinstance(value, str):
            words.append(value)
        else:
            words.append(f"{name}={'x'.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(words)


def backward_rounding(rule: Rule = EXACT, **changes: Any) -> Rounding:
    """Return the rule of a gradient: what forward saved was rounded to the dtype of the row, and that error does not
    shrink with the gradient, so it is counted in units of the largest gradient."""
    of_forward = rule if isinstance(rule, Rounding) else Rounding()
    return msgspec.structs.replace(of_forward, **{"ulps": 4, "inner": 16, "scale": "max", "saved": True, **changes})

"""Declare convolutions, pooling and resizing of images and sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import Cut, Operand, Operator, backward_rounding
from flagperf_cases.operators.tolerance import EXACT, Rounding, Rule

if TYPE_CHECKING:
    import torch

OF_CONVOLUTION = Rounding(inner=64, scale="max", saved=True)
"""Algorithms that save products (Winograd) lose some bits of the largest numbers."""


class Window:
    """Computes what follows from a convolution's sizes."""

    def __init__(
        self,
        batch: int,
        inputs: int,
        outputs: int,
        size: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        layout: str = "contiguous",
        dims: int = 2,
    ) -> None:
        after = (size + 2 * padding - kernel) // stride + 1
        self.x = Operand((batch, inputs, *[size] * dims), layout=layout)
        self.weight = Operand((outputs, inputs // groups, *[kernel] * dims), draw="small", layout=layout)
        self.y = Operand((batch, outputs, *[after] * dims))
        self.terms = inputs // groups * kernel**dims
        self.flops = 2 * batch * outputs * after**dims * self.terms
        self.backward_terms = max(batch * after**dims, outputs // groups * kernel**dims)


def convolution(name: str, call: Callable[..., Any], dims: int, shapes: Any) -> Operator:
    return Operator(
        name=name,
        group="convolution",
        shapes=shapes,
        operands=lambda **sizes: (Window(**sizes, dims=dims).x, Window(**sizes, dims=dims).weight),
        outputs=lambda **sizes: (Window(**sizes, dims=dims).y,),
        call=call,
        options=("stride", "padding", "groups"),
        rule=OF_CONVOLUTION,
        backward_rule=backward_rounding(inner=64),
        terms=lambda **sizes: Window(**sizes, dims=dims).terms,
        backward_terms=lambda **sizes: Window(**sizes, dims=dims).backward_terms,
        flops=lambda **sizes: Window(**sizes, dims=dims).flops,
        cut=Cut(),
    )


def _image(inputs: int, outputs: int, size: int, kernel: int, batch: int = 64, **more: Any) -> dict[str, Any]:
    return {"batch": batch, "inputs": inputs, "outputs": outputs, "size": size, "kernel": kernel, **more}


def pooling(name: str, call: Callable[..., Any], rule: Rule) -> Operator:
    return Operator(
        name=name,
        group="convolution",
        shapes={
            # After the first convolution of ResNet-50.
            "model": ({"batch": 64, "channels": 64, "size": 112},),
            "odd": ({"batch": 7, "channels": 13, "size": 57},),
            "strided": ({"batch": 64, "channels": 64, "size": 112, "layout": "channels_last"},),
            "tiny": ({"batch": 2, "channels": 5, "size": 17},),
        },
        operands=lambda batch, channels, size, layout="contiguous": (
            Operand((batch, channels, size, size), layout=layout),
        ),
        outputs=lambda batch, channels, size, layout="": (
            Operand((batch, channels, (size - 1) // 2 + 1, (size - 1) // 2 + 1)),
        ),
        call=call,
        rule=rule,
        widens=rule is not EXACT,
        terms=lambda **_: 9,
        cut=Cut(),
    )


OPERATORS: Sequence[Operator] = (
    convolution(
        "conv2d",
        lambda x, w, **options: torch.nn.functional.conv2d(x, w, **options),
        2,
        {
            "model": (
                # ResNet-50.
                _image(3, 64, 224, 7, stride=2, padding=3),
                _image(64, 64, 56, 3, padding=1),
                _image(256, 64, 56, 1),
                _image(512, 512, 7, 3, padding=1),
                # Depthwise, of MobileNet; the patches of a vision transformer.
                _image(144, 144, 56, 3, padding=1, groups=144),
                _image(3, 768, 224, 16, stride=16),
            ),
            "odd": (_image(13, 27, 55, 3, batch=7, padding=1),),
            "strided": (_image(64, 64, 56, 3, padding=1, layout="channels_last"),),
            "tiny": (
                _image(3, 8, 17, 3, batch=2, stride=2, padding=1),
                _image(4, 4, 9, 3, batch=2, groups=4, layout="channels_last"),
            ),
        },
    ),
    convolution(
        "conv1d",
        lambda x, w, **options: torch.nn.functional.conv1d(x, w, **options),
        1,
        {
            # The audio encoder of Whisper large; the short convolution of Mamba.
            "model": (
                _image(128, 1280, 3000, 3, batch=16, padding=1),
                _image(1280, 1280, 3000, 3, batch=16, stride=2, padding=1),
                _image(5120, 5120, 2048, 4, batch=8, padding=3, groups=5120),
            ),
            "odd": (_image(13, 27, 1021, 5, batch=3),),
            "tiny": (_image(5, 7, 65, 3, batch=2, padding=1),),
        },
    ),
    pooling("max_pool2d", lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1), EXACT),
    pooling("avg_pool2d", lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1), Rounding(scale="max", saved=True)),
    Operator(
        name="interpolate",
        group="convolution",
        shapes={
            # The decoder of a U-Net.
            "model": ({"batch": 2, "channels": 640, "size": 32},),
            "odd": ({"batch": 3, "channels": 13, "size": 27},),
            "tiny": ({"batch": 2, "channels": 3, "size": 9},),
        },
        operands=lambda batch, channels, size: (Operand((batch, channels, size, size)),),
        outputs=lambda batch, channels, size: (Operand((batch, channels, 2 * size, 2 * size)),),
        call=lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
        rule=Rounding(ulps=4, scale="max", saved=True),
        cut=Cut(),
    ),
)

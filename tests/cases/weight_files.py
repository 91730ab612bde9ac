"""Weights as files, written without any library: zeros by name and shape."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

Shapes = Mapping[str, tuple[int, ...]]


def write_safetensors(path: Path, shapes: Shapes) -> Path:
    path.write_bytes(safetensors(shapes))
    return path


def safetensors(shapes: Shapes) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)

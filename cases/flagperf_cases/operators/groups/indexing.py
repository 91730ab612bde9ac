"""Declare what reads rows of a table, and numbers at given places: limited by memory, and by how scattered the places
are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagperf_cases.operators.operator import FLOATS, Operand, Operator, Shapes, backward_rounding
from flagperf_cases.operators.tolerance import EXACT, Rounding

if TYPE_CHECKING:
    import torch

ROWS: Shapes = {
    # Features of a large graph, embeddings of a recommender, and the tokens of a prompt.
    "model": (
        {"rows": 1_000_000, "width": 128, "picked": 262144},
        {"rows": 1_000_000, "width": 1024, "picked": 65536},
        {"rows": 131072, "width": 4096, "picked": 8192},
    ),
    "odd": ({"rows": 10007, "width": 259, "picked": 4099},),
    "tiny": ({"rows": 67, "width": 35, "picked": 41},),
}


OPERATORS: Sequence[Operator] = (
    Operator(
        name="embedding",
        group="indexing",
        shapes={
            # Llama 3 8B: ids drawn evenly, and as words come in a text.
            "model": (
                {"tokens": 8192, "rows": 128256, "width": 4096},
                {"tokens": 8192, "rows": 128256, "width": 4096, "ids": "zipf"},
            ),
            "odd": ({"tokens": 1021, "rows": 10007, "width": 259, "ids": "zipf"},),
            "tiny": ({"tokens": 61, "rows": 97, "width": 33, "ids": "zipf"},),
        },
        operands=lambda tokens, rows, width, ids="indices": (
            Operand((tokens,), "int64", draw=ids, high=rows),
            Operand((rows, width)),
        ),
        outputs=lambda tokens, rows, width, ids="": (Operand((tokens, width)),),
        call=lambda ids, table: torch.nn.functional.embedding(ids, table),
        rule=EXACT,
        widens=False,
        # Gradients of one id are added up in the dtype of the row.
        backward_rule=backward_rounding(ulps=8),
        backward_terms=lambda tokens, **_: tokens,
        traffic=lambda element, tokens, rows, width, ids="": tokens * (8 + 2 * width * element),
        backward_traffic=lambda element, tokens, rows, width, ids="": (
            tokens * (8 + width * element) + rows * width * element
        ),
    ),
    Operator(
        name="index_select",
        group="indexing",
        shapes=ROWS,
        operands=lambda rows, width, picked: (
            Operand((rows, width)),
            Operand((picked,), "int64", draw="indices", high=rows),
        ),
        outputs=lambda rows, width, picked: (Operand((picked, width)),),
        call=lambda x, index: torch.index_select(x, 0, index),
        dtypes=(*FLOATS, "int32"),
        rule=EXACT,
        widens=False,
        traffic=lambda element, rows, width, picked: picked * (8 + 2 * width * element),
    ),
    Operator(
        name="gather",
        group="indexing",
        shapes=ROWS,
        operands=lambda rows, width, picked: (
            Operand((rows, width)),
            Operand((picked, width), "int64", draw="indices", high=rows),
        ),
        outputs=lambda rows, width, picked: (Operand((picked, width)),),
        call=lambda x, index: torch.gather(x, 0, index),
        dtypes=(*FLOATS, "int32"),
        rule=EXACT,
        widens=False,
        traffic=lambda element, rows, width, picked: picked * width * (8 + 2 * element),
    ),
    Operator(
        name="scatter",
        group="indexing",
        shapes=ROWS,
        # Each row once, so that the result does not depend on the order.
        operands=lambda rows, width, picked: (
            Operand((rows, width)),
            Operand((picked,), "int64", draw="permutation"),
            Operand((picked, width)),
        ),
        call=lambda x, index, source: x.scatter(0, index[:, None].expand(source.shape), source),
        dtypes=(*FLOATS, "int32"),
        rule=EXACT,
        widens=False,
        traffic=lambda element, rows, width, picked: (rows * 2 + picked) * width * element + picked * 8,
    ),
    Operator(
        name="index_add",
        group="indexing",
        shapes=ROWS,
        operands=lambda rows, width, picked: (
            Operand((rows, width)),
            Operand((picked,), "int64", draw="indices", high=rows),
            Operand((picked, width)),
        ),
        call=lambda x, index, source: x.index_add(0, index, source),
        # Rows of one place are added up in the dtype of the row.
        rule=Rounding(ulps=8, scale="max", saved=True),
        traffic=lambda element, rows, width, picked: (rows * 2 + picked) * width * element + picked * 8,
    ),
    Operator(
        name="masked_fill",
        group="indexing",
        shapes={
            "model": ({"rows": 8192, "columns": 8192},),
            "odd": ({"rows": 1021, "columns": 4099},),
            "tiny": ({"rows": 61, "columns": 515},),
        },
        operands=lambda rows, columns: (
            Operand((rows, columns)),
            Operand((rows, columns), "bool", draw="indices", high=2),
        ),
        call=lambda x, mask: x.masked_fill(mask, -1.0),
        rule=EXACT,
        widens=False,
    ),
)

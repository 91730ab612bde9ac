"""environment.json: the facts of every node. What a node has in common with an earlier one is written once.

A list with an object for each node, in the form of NodeFacts. In place of its `environment`, or of an item of its
`vendors`, there may be the index of an earlier node that has the same in that place: the nodes of a large run are alike
but for their names and cards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flagperf.spec import NodeFacts


def with_references(nodes: Sequence[NodeFacts]) -> list[dict[str, Any]]:
    first: dict[tuple[str, int, bytes], int] = {}

    def once(field: str, place: int, value: Any, index: int) -> Any:
        owner = first.setdefault((field, place, msgspec.json.encode(value)), index)
        return value if owner == index else owner

    written: list[dict[str, Any]] = []
    for index, node in enumerate(nodes):
        content = msgspec.to_builtins(node)
        content["environment"] = once("environment", 0, content["environment"], index)
        content["vendors"] = [once("vendors", place, each, index) for place, each in enumerate(content["vendors"])]
        written.append(content)
    return written


def resolved(content: Sequence[dict[str, Any]]) -> tuple[NodeFacts, ...]:
    """The nodes share what is written once. Raises msgspec.ValidationError, LookupError, TypeError or AttributeError if
    the content is not valid."""
    nodes: list[NodeFacts] = []
    for node in content:
        found = msgspec.convert(node, dict[str, Any])
        if isinstance(found.get("environment"), int):
            found["environment"] = _earlier(nodes, found["environment"]).environment
        found["vendors"] = [
            _earlier(nodes, each).vendors[place] if isinstance(each, int) else each
            for place, each in enumerate(found.get("vendors", ()))
        ]
        nodes.append(msgspec.convert(found, NodeFacts))
    return tuple(nodes)


def _earlier(nodes: Sequence[NodeFacts], index: int) -> NodeFacts:
    if not 0 <= index < len(nodes):
        raise LookupError(f"node {len(nodes)} refers to node {index}, which is not an earlier one")
    return nodes[index]

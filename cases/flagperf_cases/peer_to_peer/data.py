"""Choose and check which transfers are measured: sizes of the configuration, and pairs of ranks. Importable without
torch."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import DataFile
from flagperf_cases.sizes import read_size, read_sizes

Pair = tuple[int, int]
"""Ranks: from, to."""


def check_files(_data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    _sizes(values["peer_to_peer"])
    return []


Known = tuple[tuple[Pair, ...], str, str, str]
"""The first fields of a Transfer, which do not depend on its size."""


class Transfer(msgspec.Struct, frozen=True):
    """Names the pairs that are measured at the same time."""

    pairs: tuple[Pair, ...]
    direction: str
    """one-way, or both: the second of a pair sends as well, at the same time."""
    scope: str
    """node: within one; nodes: between two."""
    at_once: str
    """one pair, or all of two nodes."""
    size: int
    kind: str
    """headline: what results are compared by; sweep: further sizes."""

    @property
    def members(self) -> list[int]:
        return sorted({rank for pair in self.pairs for rank in pair})


def planned_transfers(values: dict[str, Any], nodes: list[list[int]]) -> list[Transfer]:
    """Return transfers in the order in which they are measured; `nodes` are the ranks of each. The further sizes are
    those of the first pair within a node, and of the first between two."""
    headline, sizes = _sizes(values["peer_to_peer"])
    within: list[Known] = []
    for ranks in nodes:  # every ordered pair of a node; both ways once for the two
        within += [((pair,), "one-way", "node", "one") for pair in itertools.permutations(ranks, 2)]
        within += [((pair,), "both", "node", "one") for pair in itertools.combinations(ranks, 2)]
    between: list[Known] = []
    for here, there in itertools.pairwise(nodes):  # equal places of two nodes: one pair after the other, then all
        forth = tuple(zip(here, there, strict=True))
        back = tuple((second, first) for first, second in forth)
        directions = (("one-way", forth), ("one-way", back), ("both", forth))
        for direction, pairs in directions:
            between += [((pair,), direction, "nodes", "one") for pair in pairs]
        if len(forth) > 1:
            between += [(pairs, direction, "nodes", "all") for direction, pairs in directions]
    planned = []
    for each in (within, between):
        planned += [Transfer(*known, headline, "headline") for known in each]
        planned += [Transfer(*known, size, "sweep") for known in each if known[0] == each[0][0] for size in sizes]
    return planned


def _sizes(given: dict[str, Any]) -> tuple[int, list[int]]:
    headline = read_size("peer_to_peer.headline", given["headline"])
    return headline, [size for size in read_sizes("peer_to_peer.sizes", given["sizes"]) if size != headline]

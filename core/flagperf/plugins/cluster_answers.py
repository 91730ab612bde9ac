"""What a cluster is given and what it gives, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from flagperf.api import Allocation, Cluster, Node
from flagperf.errors import BadInput, PluginFailed, unknown_name


def cluster_options(cluster: Cluster, given: Mapping[str, Any]) -> msgspec.Struct:
    """As the cluster's own type. Numbers and switches may be given as text, as on a command line."""
    kind = cluster.options
    known = kind.__struct_fields__
    for name in given:
        if name not in known:
            raise unknown_name(f"option of cluster {cluster.name}", name, known, "" if known else "(it has none)")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"options of cluster {cluster.name}: {error}") from None


def check_nodes(name: str, allocation: Allocation, num_nodes: int) -> None:
    try:
        found = len(msgspec.convert(msgspec.to_builtins(allocation.nodes), tuple[Node, ...]))
    except (AttributeError, TypeError, msgspec.ValidationError) as error:
        raise PluginFailed(f"cluster {name!r} gave no nodes that can be used: {error}") from None
    if found != num_nodes:
        raise PluginFailed(f"cluster {name!r} was asked for {num_nodes} nodes and gave {found}")

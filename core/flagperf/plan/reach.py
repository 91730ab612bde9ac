"""reach_nodes: the nodes of a request, with an agent on each, for as long as a command needs them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flagperf.errors import BadInput
from flagperf.fleet import Fleet, open_fleet
from flagperf.plan.userfile import read_user_file
from flagperf.plugins import Plugins
from flagperf.spec import RunSpec, parse_assignment


@contextlib.contextmanager
def reach_nodes(spec: RunSpec, plugins: Plugins) -> Iterator[Fleet]:
    for name, value in (("--nodes", spec.nodes), ("--devices", spec.devices)):
        if value < 1:
            raise BadInput(f"{name} must be at least 1; got {value}")
    with (
        plugins.allocation(spec.cluster, spec.nodes, given_options(spec)) as allocation,
        open_fleet(allocation) as fleet,
    ):
        yield fleet


def given_options(spec: RunSpec) -> dict[str, Any]:
    """Of the cluster: [clusters.NAME] of the user's file, and --cluster-option over it."""
    from_file = read_user_file(spec.config).clusters.get(spec.cluster, {})
    return {**from_file, **dict(parse_assignment(text, "--cluster-option") for text in spec.cluster_options)}

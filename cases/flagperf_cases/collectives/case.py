"""How fast devices exchange data in collectives, within a node and across nodes. See README.md."""

from __future__ import annotations

import msgspec
from torch import distributed

from flagperf.worker import Context, Timed
from flagperf_cases.collectives.exchanges import Group, make_exchange
from flagperf_cases.collectives.preflight import Message, planned_messages

LIMITS = {"node": {"bus_bytes": "link_bandwidth"}, "nodes": {}}
"""By scope. What bounds a transfer across nodes is not the card."""


def run(ctx: Context) -> None:
    messages = planned_messages({"collectives": vars(ctx.config.collectives)})
    groups = make_groups(ctx)
    with ctx.measured(planned_steps=len(messages) * len(groups)):
        for scope, group in groups.items():
            for message in messages:
                measure(ctx, scope, group, message)


def make_groups(ctx: Context) -> dict[str, Group]:
    """Scope -> the group of this rank: its node, where that has several devices, and all nodes, where there are
    several."""
    nodes = ctx.ranks_by_node()
    if len(nodes) == 1:
        return {"node": Group(None, tuple(nodes[0]), ctx.rank)}
    groups = {}
    if len(nodes[0]) > 1:
        handles = [distributed.new_group(ranks) for ranks in nodes]  # every rank makes all of them
        mine = next(index for index, ranks in enumerate(nodes) if ctx.rank in ranks)
        groups["node"] = Group(handles[mine], tuple(nodes[mine]), nodes[mine].index(ctx.rank))
    return {**groups, "nodes": Group(None, tuple(range(ctx.world_size)), ctx.rank)}


def measure(ctx: Context, scope: str, group: Group, message: Message) -> None:
    labels = {
        "operation": message.operation,
        "precision": message.precision,
        "bytes": message.size,
        "class": message.kind,
        "scope": scope,
        "ranks": group.size,
    }
    ctx.timed_row("collective", labels, lambda: prepare(ctx, scope, group, message), together=True)


def prepare(ctx: Context, scope: str, group: Group, message: Message) -> Timed:
    seed = ctx.config.collectives.seed
    made = make_exchange(message.operation, message.precision, message.size, group, ctx.device, seed)
    return msgspec.structs.replace(made, limits=LIMITS[scope])

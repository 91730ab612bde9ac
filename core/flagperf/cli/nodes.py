"""flagperf nodes"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import click
import msgspec

from flagperf.cli.columns import echo_columns
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import NodesCommand, common, echo_json, nodes_request
from flagperf.cli.output import echo, echo_heading
from flagperf.errors import NodeFailed
from flagperf.launch import raise_on_signals
from flagperf.plan import CheckedNode, NodesReport, check_nodes_of, count_nodes, reach_nodes
from flagperf.plugins.installed import load_plugins
from flagperf.spec import RunSpec

FEW_NODES = 20
"""Of more, only those that differ are listed."""

SHOWN_NODES = 30
"""In one line of problems."""


@click.group(cls=CommandGroup)
def nodes() -> None:
    """Check the nodes of a cluster."""


@nodes.command("check", cls=NodesCommand)
@nodes_request
@click.option(
    "--nodes",
    type=int,
    help="Number of nodes [default: all that the cluster's options name, or the allocation has].",
)
@click.option("--all", "lists_all", is_flag=True, help=f"List every node, also where there are {FEW_NODES} or more.")
@common
def check(as_json: bool, lists_all: bool, nodes: int | None, **request: Any) -> int:
    """Ask all nodes at once whether they can be used together: reachable, the same versions and cards, the data folder,
    the clock, the network to the first node, and limits.

    What most nodes have is said once; a star marks what is different. Problems and warnings follow. The exit code is 3
    if a node cannot be used; warnings do not change it.
    """
    raise_on_signals()
    plugins, spec = load_plugins(), msgspec.convert({**request, "case": ""}, RunSpec)
    spec = msgspec.structs.replace(spec, nodes=count_nodes(spec, plugins) if nodes is None else nodes)
    with reach_nodes(spec, plugins) as fleet:
        report = check_nodes_of(spec, plugins, fleet)
    if as_json:
        echo_json(report)
    else:
        _print(report, lists_all)
    return NodeFailed.exit_code if any(node.problems for node in report.nodes) else 0


def _print(report: NodesReport, lists_all: bool) -> None:
    total, reached = len(report.nodes), sum(node.is_reached for node in report.nodes)
    usable = sum(not node.problems for node in report.nodes)
    echo(f"{total} node{'s' if total > 1 else ''}: {reached} reached, {usable} can be used")
    if report.common:
        echo_heading("What the nodes have")
        echo_columns(["  FACT", "NODES", "VALUE"], [[f"  {name}", *_common(report, name)] for name in report.common])
    listed = [node for node in report.nodes if lists_all or total < FEW_NODES or report.is_worth_a_row(node)]
    if listed:
        is_part = len(listed) < total
        echo_heading(f"Nodes that differ ({len(listed)} of {total})" if is_part else "Nodes")
        differing = report.differing_facts
        header = ["  NODE", "NAME", "HOST", "REACHED", "ADDRESS", "CLOCK", *map(str.upper, differing)]
        echo_columns(header, [_row(report, node, differing) for node in listed])
    _print_words("Problems", [(word, node) for node in report.nodes for word in node.problems])
    _print_words("Warnings", [(word, node) for node in report.nodes for word in node.warnings])


def _common(report: NodesReport, name: str) -> list[str]:
    having = sum(node.is_reached and not report.is_unlike(node, name) for node in report.nodes)
    reached = sum(node.is_reached for node in report.nodes)
    return ["all" if having == reached else f"{having} of {reached}", report.common[name]]


def _row(report: NodesReport, node: CheckedNode, facts: list[str]) -> list[str]:
    if not node.is_reached:
        return [f"  {node.index}", node.name, "-", "no", "-", "-", *("-" for _ in facts)]
    assert node.clock is not None
    clock = f"{node.clock.seconds:+.2f} s (within {node.clock.error_seconds:.2f})"
    values = [f"{node.facts[fact]}{' *' if report.is_unlike(node, fact) else ''}" for fact in facts]
    return [f"  {node.index}", node.name, node.host, "yes", node.address or "-", clock, *values]


def _print_words(heading: str, said: list[tuple[str, CheckedNode]]) -> None:
    """The same words of several nodes once."""
    by_words: dict[str, list[int]] = {}
    for words, node in said:
        by_words.setdefault(_without_name(words, node), []).append(node.index)
    if by_words:
        echo_heading(heading)
        echo_columns(["  NODES", "WHAT"], [[f"  {_numbers(indexes)}", words] for words, indexes in by_words.items()])


def _without_name(words: str, node: CheckedNode) -> str:
    return words.replace(f"node {node.index} ({node.name})", "it").replace(f"({node.name})", "")


def _numbers(indexes: list[int]) -> str:
    """`0, 3-17`"""
    parts = [*_ranges(indexes)]
    more = [f"and {len(parts) - SHOWN_NODES} more"] if len(parts) > SHOWN_NODES else []
    return ", ".join([*parts[:SHOWN_NODES], *more])


def _ranges(indexes: list[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(indexes), key=lambda pair: pair[1] - pair[0]):
        members = [index for _, index in group]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"

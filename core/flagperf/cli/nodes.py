"""flagperf nodes"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

import click
import msgspec

from flagperf.api import Device, Reading
from flagperf.cli import CommandGroup
from flagperf.cli.completers import complete_file
from flagperf.cli.options import NodesCommand, common, echo_json, exit_code_of, nodes_request, note
from flagperf.cli.output import echo, echo_columns, echo_heading
from flagperf.errors import MissingPart, NodeFailed
from flagperf.fleet.reach import count_nodes, describe_machine, reach_nodes
from flagperf.fleet.signals import raise_on_signals
from flagperf.plan.node_check import CheckedNode, NodesReport, check_nodes_of
from flagperf.plan.placement import describe_finding
from flagperf.plugins.installed import load_plugins
from flagperf.spec.job import RunSpec
from flagperf.spec.node_facts import NodeFacts, VendorFacts
from flagperf.spec.user_file import read_user_file, with_stated_environment
from flagperf.units import memory_cell

FEW_NODES = 20
"""If there are as many nodes or more, only those that differ are listed."""

SHOWN_NODES = 30
"""The most that one line of problems names."""


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
        rows = []
        for name, value in report.common.items():
            having = sum(node.is_reached and not report.is_unlike(node, name) for node in report.nodes)
            rows.append([f"  {name}", "all" if having == reached else f"{having} of {reached}", value])
        echo_columns(["  FACT", "NODES", "VALUE"], rows)
    listed = [node for node in report.nodes if lists_all or total < FEW_NODES or report.is_worth_a_row(node)]
    if listed:
        is_part = len(listed) < total
        echo_heading(f"Nodes that differ ({len(listed)} of {total})" if is_part else "Nodes")
        differing = report.differing_facts
        rows = []
        for node in listed:
            row = [f"  {node.index}", node.name, "-", "no", "-", "-", *("-" for _ in differing)]
            if node.clock is not None:
                clock = f"{node.clock.seconds:+.2f} s (within {node.clock.error_seconds:.2f})"
                row[2:6] = [node.host, "yes", node.address or "-", clock]
                row[6:] = [f"{node.facts[fact]}{' *' if report.is_unlike(node, fact) else ''}" for fact in differing]
            rows.append(row)
        header = ["  NODE", "NAME", "HOST", "REACHED", "ADDRESS", "CLOCK", *map(str.upper, differing)]
        echo_columns(header, rows)
    _print_words("Problems", [(word, node) for node in report.nodes for word in node.problems])
    _print_words("Warnings", [(word, node) for node in report.nodes for word in node.warnings])


def _print_words(heading: str, said: list[tuple[str, CheckedNode]]) -> None:
    """Print the same words of several nodes once."""
    by_words: dict[str, list[int]] = {}
    for words, node in said:
        shared = words.replace(f"node {node.index} ({node.name})", "it").replace(f"({node.name})", "")
        by_words.setdefault(shared, []).append(node.index)
    if by_words:
        echo_heading(heading)
        echo_columns(["  NODES", "WHAT"], [[f"  {_numbers(indexes)}", words] for words, indexes in by_words.items()])


def _numbers(indexes: list[int]) -> str:
    """Return `0, 3-17`."""
    parts = []
    for _, group in groupby(enumerate(indexes), key=lambda pair: pair[1] - pair[0]):
        members = [index for _, index in group]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    more = [f"and {len(parts) - SHOWN_NODES} more"] if len(parts) > SHOWN_NODES else []
    return ", ".join([*parts[:SHOWN_NODES], *more])


# flagperf devices


@click.command()
@common
def devices(as_json: bool) -> int:
    """List the devices of this machine, of all vendors, with their current memory use. The exit code is 3 if an adapter
    failed."""
    plugins = load_plugins()
    found = describe_machine(plugins, with_memory=True).vendors
    broken = plugins.broken_adapters()
    for adapter in broken:
        note(f"an adapter could not be asked: {adapter}")
    if as_json:
        echo_json(found)
        return exit_code_of(found, broken)
    rows = []
    for facts in found:
        if facts.memory_scope == "host" and facts.devices:  # all slots of a shared memory pool in one line
            first, last = facts.devices[0], facts.devices[-1]
            pool = facts.readings[0] if facts.readings else None
            rows.append(_device_row(facts, f"{first.id} to {last.id}", first, pool))
        elif facts.memory_scope != "host":
            readings = {reading.device_id: reading for reading in facts.readings}
            rows += [_device_row(facts, device.id, device, readings.get(device.id)) for device in facts.devices]
    echo_columns(["VENDOR", "DEVICE", "MODEL", "USED/TOTAL GiB", "READ BY"], rows)
    for facts in found:
        if not facts.devices:
            note(f"{facts.shown_vendor}: {describe_finding(facts)}")
        for device in facts.devices:
            if device.problem:
                note(f"{facts.shown_vendor}: {device.id} cannot be used: {device.problem}")
    return exit_code_of(found, broken)


def _device_row(facts: VendorFacts, name: str, device: Device, reading: Reading | None) -> list[str]:
    memory = "n/a"
    if reading is not None and reading.used_bytes is not None and reading.total_bytes is not None:
        memory = memory_cell(reading.used_bytes, reading.total_bytes)
    return [facts.shown_vendor, name, device.short_name if device.slice else device.model, memory, facts.probe]


# flagperf env


@click.command()
@click.option(
    "--config",
    shell_complete=complete_file,
    metavar="FILE",
    help="File with an [environment] table [default: ./flagperf.toml].",
)
@click.option("--torch-constraint", is_flag=True, help="Print a pip constraint that keeps the installed torch.")
@common
def env(config: str | None, torch_constraint: bool, as_json: bool) -> None:
    """Show the environment as result pages list it: machine, cards, CPU, network, OS, kernel, driver, framework."""
    plugins = load_plugins()
    node = with_stated_environment(describe_machine(plugins), read_user_file(config))
    if torch_constraint:
        version = node.environment.packages.get("torch")
        if version is None:
            raise MissingPart("torch is not installed; install your vendor's build of torch first")
        constraint = f"torch=={version}"
        echo_json({"constraint": constraint}) if as_json else echo(constraint)
    elif as_json:
        echo_json(node)
    else:
        echo_columns(["FACT", "VALUE"], environment_rows(node))


def environment_rows(node: NodeFacts) -> list[list[str]]:
    rows = [["host", node.host]]
    for name, fact in node.environment.facts.items():
        stated = " (stated)" if fact.how == "stated" else ""
        rows.append([name, f"n/a ({fact.reason})" if fact.value is None else f"{fact.value}{stated}"])
    for vendor in node.vendors:
        if vendor.memory_scope == "device":
            models = Counter(device.model for device in vendor.devices)
            rows += [[f"cards {vendor.shown_vendor}", f"{count} x {model}"] for model, count in models.items()]
        others = {name: version for name, version in vendor.versions.items() if name != "driver"}  # a fact already
        rows += [[f"{name} {vendor.shown_vendor}", version] for name, version in others.items()]
    packages = ", ".join(f"{name} {version}" for name, version in node.environment.packages.items())
    rows.append(["packages", packages or "none that a run uses"])
    rows += [[f"${name}", value] for name, value in node.environment.variables.items()]
    return rows

"""flagperf vendors"""

from __future__ import annotations

import click

from flagperf.cli.columns import echo_columns
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import common, echo_json, note
from flagperf.cli.vendors_check import check_vendor
from flagperf.cli.vendors_new import new_vendor
from flagperf.plan import describe_finding, describe_machine
from flagperf.plugins import load_plugins
from flagperf.spec import VendorFacts


@click.group(cls=CommandGroup)
def vendors() -> None:
    """List, write and check vendor adapters."""


@vendors.command("list")
@common
def list_vendors(as_json: bool) -> None:
    """List all adapters, each with what it found on this machine or why it is not used."""
    plugins = load_plugins()
    statuses = plugins.statuses()
    found = describe_machine(plugins.cluster("local")).vendors
    if as_json:
        echo_json({"vendors": found, "plugins": statuses})
        return
    echo_columns(["VENDOR", "ADAPTER", "STATE", "EVIDENCE OR REASON"], [_row(facts) for facts in found])
    for status in statuses:
        if status.problem:
            note(f"plugin {status.name} ({status.distribution} {status.version}): {status.problem}")


def _row(facts: VendorFacts) -> list[str]:
    state = "error" if facts.error or facts.presence is None else facts.presence.state
    return [facts.shown_vendor, facts.adapter, state, describe_finding(facts)]


vendors.add_command(new_vendor)
vendors.add_command(check_vendor)

"""flagperf vendors"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from flagperf.cli.columns import echo_columns
from flagperf.cli.groups import CommandGroup
from flagperf.cli.options import common, echo_json, exit_code_of, note
from flagperf.cli.vendors_check import check_vendor
from flagperf.cli.vendors_new import new_vendor
from flagperf.plan import describe_finding, describe_machine
from flagperf.plugins.loading import ADAPTER_PREFIX, PluginStatus
from flagperf.plugins.trial import load_tried_plugins
from flagperf.spec import VendorFacts


@click.group(cls=CommandGroup)
def vendors() -> None:
    """List, write and check vendor adapters."""


@vendors.command("list")
@common
def list_vendors(as_json: bool) -> int:
    """List all adapters, each with what it found on this machine or why it is not used. The exit code is 3 if one of
    them failed."""
    plugins = load_tried_plugins()
    statuses = plugins.statuses()
    found = describe_machine(plugins).vendors
    code = exit_code_of(found, [*plugins.broken_adapters(), *plugins.adapters_without_probes()])
    if as_json:
        echo_json({"vendors": found, "plugins": statuses})
        return code
    unasked = list(_unasked(found, statuses))
    rows = [_row(facts) for facts in found] + [_unasked_row(status) for status in unasked]
    echo_columns(["VENDOR", "ADAPTER", "STATE", "EVIDENCE OR REASON"], rows)
    for status in statuses:
        if status.problem and status not in unasked:
            note(f"plugin {status.name} ({status.adapter}): {status.problem}")
    return code


def _row(facts: VendorFacts) -> list[str]:
    state = "error" if facts.error or facts.presence is None else facts.presence.state
    return [facts.shown_vendor, facts.adapter, state, describe_finding(facts)]


def _unasked(found: Sequence[VendorFacts], statuses: Sequence[PluginStatus]) -> Iterator[PluginStatus]:
    """Installed adapters that gave no vendor to ask: broken, not found by their entry point, or with another's word."""
    asked = {facts.adapter for facts in found}
    return (each for each in statuses if each.distribution.startswith(ADAPTER_PREFIX) and each.adapter not in asked)


def _unasked_row(status: PluginStatus) -> list[str]:
    word = status.distribution.removeprefix(ADAPTER_PREFIX)
    if status.problem:
        return [word, status.adapter, "not used", status.problem]
    return [word, status.adapter, "no vendor", "it gives no device backend"]


vendors.add_command(new_vendor)
vendors.add_command(check_vendor)

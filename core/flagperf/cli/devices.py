"""flagperf devices"""

from __future__ import annotations

import click

from flagperf.api import Device, Reading
from flagperf.cli.columns import echo_columns
from flagperf.cli.options import common, echo_json, exit_code_of, note
from flagperf.plan import describe_finding, describe_machine
from flagperf.plugins.installed import load_plugins
from flagperf.spec import VendorFacts
from flagperf.units import memory_cell


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
    rows = [row for facts in found for row in (_pool_rows(facts) if facts.memory_scope == "host" else _rows(facts))]
    echo_columns(["VENDOR", "DEVICE", "MODEL", "USED/TOTAL GiB", "READ BY"], rows)
    for facts in found:
        if not facts.devices:
            note(f"{facts.shown_vendor}: {describe_finding(facts)}")
        for device in facts.devices:
            if device.problem:
                note(f"{facts.shown_vendor}: {device.id} cannot be used: {device.problem}")
    return exit_code_of(found, broken)


def _rows(facts: VendorFacts) -> list[list[str]]:
    readings = {reading.device_id: reading for reading in facts.readings}
    return [_row(facts, device.id, device, readings.get(device.id)) for device in facts.devices]


def _pool_rows(facts: VendorFacts) -> list[list[str]]:
    """All slots of a shared memory pool in one line."""
    if not facts.devices:
        return []
    first, last = facts.devices[0], facts.devices[-1]
    return [_row(facts, f"{first.id} to {last.id}", first, facts.readings[0] if facts.readings else None)]


def _row(facts: VendorFacts, name: str, device: Device, reading: Reading | None) -> list[str]:
    memory = "n/a"
    if reading is not None and reading.used_bytes is not None and reading.total_bytes is not None:
        memory = memory_cell(reading.used_bytes, reading.total_bytes)
    return [facts.shown_vendor, name, device.short_name if device.slice else device.model, memory, facts.probe]

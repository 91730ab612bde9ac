"""The commands that agents ran, from the parent's events."""

from __future__ import annotations

from flagperf.api import LaunchCommand
from flagperf.events import WorkersLaunched
from flagperf.metrics import Record


def launched_commands(record: Record) -> tuple[LaunchCommand, ...]:
    """Sorted by node. Nodes whose workers were not started have no command."""
    launched = [event for event in record.parent.events if isinstance(event, WorkersLaunched)]
    return tuple(event.command for event in sorted(launched, key=lambda event: event.node_index) if event.command)

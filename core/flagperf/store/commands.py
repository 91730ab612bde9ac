"""The commands that agents ran, from the parent's events."""

from __future__ import annotations

from flagperf.api import LaunchCommand
from flagperf.events import EventFile, WorkersLaunched


def launched_commands(parent: EventFile) -> tuple[LaunchCommand, ...]:
    """Sorted by node. Nodes whose workers were not started have no command."""
    launched = [event for event in parent.events if isinstance(event, WorkersLaunched)]
    return tuple(event.command for event in sorted(launched, key=lambda event: event.node_index))

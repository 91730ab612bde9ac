"""How many turns a device takes part in, for the number of planned rows."""

from __future__ import annotations

from flagperf.worker import Context


def num_turns(ctx: Context) -> int:
    """Of `Context.turns`: alone, and with all others where there are others."""
    return 1 if ctx.world_size == 1 else 2

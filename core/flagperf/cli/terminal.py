"""Documents on the terminal: how wide it is, and whether it wants color."""

from __future__ import annotations

import os
import shutil
import sys

from flagperf.cli.output import echo_styled
from flagperf.report import Document, to_terminal

PIPE_COLUMNS = 200
"""Lines that `grep` finds whole; COLUMNS=80 says otherwise, for a pager."""


def show(document: Document) -> None:
    color = wants_color()
    echo_styled(to_terminal(document, width=terminal_columns(), color=color), color)


def terminal_columns() -> int:
    """COLUMNS, else the width of the terminal that stdout is, else PIPE_COLUMNS."""
    return shutil.get_terminal_size((PIPE_COLUMNS, 24)).columns


def wants_color() -> bool:
    """NO_COLOR goes before FORCE_COLOR; one that is set and empty says nothing (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

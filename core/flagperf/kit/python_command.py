"""How flagperf starts its own Python processes."""

from __future__ import annotations

# `python -m` imports from the current folder first, so that a user's own json.py or torch.py would be taken for the
# real one. `-P` turns that off from Python 3.11 on; this does the same on 3.10 as well.
_START = (
    "import sys; sys.path = [*filter(None, sys.path)]; "
    "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
)


def module_command(python: str, module: str) -> tuple[str, ...]:
    """`python -m module`, without the current folder among the places to import from. PYTHONPATH counts as ever."""
    return (python, "-c", _START.format(module))

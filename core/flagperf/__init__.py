"""flagperf: one benchmark case, any accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flagperf.run import run_case

__all__ = ["run_case"]


def __getattr__(name: str) -> Any:
    """run_case is imported when it is asked for, so that workers and light commands do not pay for it."""
    if name == "run_case":
        from flagperf.run import run_case

        return run_case
    raise AttributeError(f"module 'flagperf' has no attribute {name!r}")

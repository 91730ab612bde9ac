"""flagperf: one benchmark case, any accelerator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flagperf.run import run_case

    __version__: str

__all__ = ["run_case", "version"]


@functools.cache
def version() -> str:
    """Return the version of the installed flagperf."""
    import importlib.metadata  # not at the top: workers import flagperf too

    return importlib.metadata.version("flagperf")


def __getattr__(name: str) -> Any:
    """Give what is costly to import when it is asked for: workers and light commands do not pay for it."""
    if name == "run_case":
        from flagperf.run import run_case

        return run_case
    if name == "__version__":
        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Errors of an adapter's code that runs in the parent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flagperf.errors import FlagPerfError, NodeFailed


@contextlib.contextmanager
def adapter_errors(adapter: str) -> Iterator[None]:
    """Whatever an adapter's code raises in this block becomes NodeFailed with the adapter's name."""
    try:
        yield
    except FlagPerfError:
        raise
    except Exception as error:
        raise NodeFailed(f"adapter {adapter} failed: {type(error).__name__}: {error}") from error

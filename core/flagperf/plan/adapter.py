"""Calling an adapter's code in the parent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flagperf.errors import FlagPerfError, NodeFailed


@contextlib.contextmanager
def adapter_code(adapter: str) -> Iterator[None]:
    """Whatever an adapter's code raises here is that adapter's failure, said with its name."""
    try:
        yield
    except FlagPerfError:
        raise
    except Exception as error:
        raise NodeFailed(f"adapter {adapter} failed: {type(error).__name__}: {error}") from error

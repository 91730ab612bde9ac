"""The precision of one row, in a case whose rows have a precision each."""

from __future__ import annotations

from flagperf.api import DeviceBackend, Precision, precision
from flagperf.errors import Unsupported


def switch_precision(backend: DeviceBackend, name: str) -> tuple[Precision, dict[str, str]]:
    """With the framework's switches, read back. Raises Unsupported if the adapter does not have it."""
    if name not in backend.precisions:
        offered = ", ".join(backend.precisions)
        raise Unsupported(f"vendor {backend.vendor} does not support precision {name}; it has: {offered}")
    chosen = precision(name)
    backend.set_precision(chosen)
    return chosen, {switch: str(value) for switch, value in backend.precision_switches().items()}

"""flagperf: one benchmark case, any accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagperf.lazy_names import lazy_names

if TYPE_CHECKING:
    from flagperf.run import run_case
else:  # lazy, so that workers and light commands do not pay for it
    __getattr__ = lazy_names(__name__, {"run_case": "flagperf.run"})

__all__ = ["run_case"]

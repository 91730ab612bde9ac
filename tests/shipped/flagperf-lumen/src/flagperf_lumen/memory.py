"""What Lumen cards use, read through lumen-smi."""

from __future__ import annotations

from flagperf.api import Query, ToolProbe
from flagperf_lumen import smi

FIGURES = ("used_bytes", "total_bytes", "power_watts", "temperature_celsius")


class LumenSmiProbe(ToolProbe):
    vendor = "lumen"
    name = "lumen-smi"
    tool = smi.TOOL
    queries = (Query(smi.QUERY, smi.parse_query, FIGURES),)
    figures = FIGURES
    minimum_interval_seconds = 1.0  # Yours: what the tool can bear

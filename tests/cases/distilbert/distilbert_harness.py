"""distilbert on the CPU, without launcher and agent."""

from __future__ import annotations

from case_harness import CaseHarness

_case = CaseHarness("distilbert")
manifest, values, run_case, run_ranks = _case.manifest, _case.values, _case.run, _case.run_ranks

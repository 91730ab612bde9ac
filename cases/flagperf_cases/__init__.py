"""Offer the cases of this repository: every folder with a case.toml. Written as an outside plugin would be."""

from __future__ import annotations

from pathlib import Path

from flagperf.api import CaseReference
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_cases() -> list[CaseReference]:
    manifests = sorted(Path(__file__).parent.glob("*/case.toml"))
    return [CaseReference(f"{__name__}.{path.parent.name}.case:run", path) for path in manifests]

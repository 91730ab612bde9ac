"""Cases from outside, as a benchmark author would ship them: `toy` makes its data, `toy_data` reads it."""

from pathlib import Path

from flagperf.api import CaseReference
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_cases() -> list[CaseReference]:
    folder = Path(__file__).parent
    return [CaseReference(f"{__name__}.{name}.case:run", folder / name / "case.toml") for name in ("toy", "toy_data")]

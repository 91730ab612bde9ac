from pathlib import Path

from flagperf.api import CaseReference
from flagperf.hookspecs import hookimpl
from flagperf_copying import kind  # noqa: F401  it registers itself

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_cases() -> list[CaseReference]:
    return [CaseReference("flagperf_copying.case:run", Path(__file__).parent / "case.toml")]

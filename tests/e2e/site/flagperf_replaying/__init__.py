from pathlib import Path

from flagperf.api import CaseReference
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_cases() -> list[CaseReference]:
    return [CaseReference("flagperf_replaying.case:run", Path(__file__).parent / "case.toml")]

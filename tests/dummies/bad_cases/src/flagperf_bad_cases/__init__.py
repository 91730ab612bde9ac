"""Four cases that cannot be listed (no file, no TOML, a field that is wrong, somebody else's name) and one that can."""

from pathlib import Path

from flagperf.api import CaseReference
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_cases() -> list[CaseReference]:
    folder = Path(__file__).parent
    names = ("missing", "not_toml", "wrong_field", "taken_name", "fine")
    return [CaseReference("flagperf_bad_cases.case:run", folder / f"{name}.toml") for name in names]

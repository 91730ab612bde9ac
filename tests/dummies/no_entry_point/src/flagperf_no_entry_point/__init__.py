"""An adapter whose pyproject.toml has no entry point: nothing can find its hooks."""

from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices():
    return []

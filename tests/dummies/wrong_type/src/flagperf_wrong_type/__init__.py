"""Gives a text where a list of objects belongs, and nothing at all where one belongs too."""

from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> str:
    return "acme"


@hookimpl
def flagperf_launchers() -> None:
    return None

"""Which versions of flagperf a plugin says that it works with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from flagperf.errors import PluginRefused

CORE = "flagperf"

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_BOUND = re.compile(r"(>=|<=|>|<)\s*(\d+(?:\.\d+)*)")
_ONE = r"(?:>=|<=|>|<)\s*\d+(?:\.\d+)*\s*"
_OF_AN_EXTRA = re.compile(r""";\s*extra\s*==\s*["'][\w.-]+["']\s*$""")
_PLAIN = re.compile(rf"(?i:flagperf)\s*(?:\[[^\]]*\])?\s*((?:{_ONE}(?:,\s*{_ONE})*)?)")


def check_core_range(requirements: Iterable[str], core_version: str) -> None:
    """`requirements` are those of the plugin's own metadata, so that they hold after `pip install --no-deps` too."""
    for text in requirements:
        named = _NAME.match(text)
        if (named is None or named[1].lower() == CORE) and not _OF_AN_EXTRA.search(text):
            _check(text, core_version)


def _check(text: str, core_version: str) -> None:
    """Plain bounds are compared here: most adapters have nothing else, and importing packaging takes 30 ms."""
    plain = _PLAIN.fullmatch(text.strip())
    if plain and re.fullmatch(r"\d+(\.\d+)*", core_version):
        bounds = _BOUND.findall(plain[1])
        if not all(_COMPARISONS[operator](*_numbers(core_version, bound)) for operator, bound in bounds):
            raise _refused(",".join(f"{operator}{bound}" for operator, bound in bounds), core_version)
        return
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise PluginRefused(f"its metadata has an invalid requirement {text!r}: {error}") from error
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return
    if not requirement.specifier.contains(core_version, prereleases=True):
        raise _refused(str(requirement.specifier), core_version)


def _refused(bounds: str, core_version: str) -> PluginRefused:
    return PluginRefused(f"it needs flagperf{bounds}, this is {core_version}")


def _numbers(*versions: str) -> list[list[int]]:
    """1.2 and 1.2.0 are one version."""
    parts = [list(map(int, version.split("."))) for version in versions]
    width = max(map(len, parts))
    return [[*numbers, *[0] * (width - len(numbers))] for numbers in parts]


_COMPARISONS: dict[str, Callable[[list[int], list[int]], bool]] = {
    ">=": lambda found, bound: found >= bound,
    "<=": lambda found, bound: found <= bound,
    ">": lambda found, bound: found > bound,
    "<": lambda found, bound: found < bound,
}

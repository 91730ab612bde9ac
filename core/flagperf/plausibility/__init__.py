"""Plausibility: rules that make a recorded figure doubtful, applied when runs are shown.

- rules.toml: every rule: id, effect, the metrics that it may mark, its limits, the published mistake behind it
- contradictions, speed, figures, rows, telemetry: the checks of one run; together: those of several
- arithmetic: what they share with the checks of published pages (flagperf.pages)
- apply: runs with marks and doubts
"""

from typing import TYPE_CHECKING

from flagperf.lazy_names import lazy_modules

_MODULES = {"apply": ("marked", "marked_line", "read_marked", "refusals"), "rule": ("Rule", "rules")}

if TYPE_CHECKING:
    from flagperf.plausibility.apply import marked, marked_line, read_marked, refusals
    from flagperf.plausibility.rule import Rule, rules
else:
    __getattr__ = lazy_modules(__name__, _MODULES)

__all__ = ["Rule", "marked", "marked_line", "read_marked", "refusals", "rules"]

"""Comparison: when one group of runs is faster than another, and by how much.

- side: what was named: a group of runs, or a published result; `named` finds it on disk
- condition, obstacles: what differs, and what makes two sides incomparable
- ratio, verdict: the statistics, pure functions of numbers
- figures, rows, steps: what is compared: metrics, measured rows, the steps of single runs
- limits: `--fail-if`
- comparison: all of it together
"""

from flagperf.compare.comparison import Comparison, compare
from flagperf.compare.contrast import Contrast
from flagperf.compare.figures import Figure, SideValue, main_entries
from flagperf.compare.limits import Judgement, Limit, parse_limit
from flagperf.compare.named import named_sides
from flagperf.compare.ratio import Ratio
from flagperf.compare.side import Side

__all__ = [
    "Comparison",
    "Contrast",
    "Figure",
    "Judgement",
    "Limit",
    "Ratio",
    "Side",
    "SideValue",
    "compare",
    "main_entries",
    "named_sides",
    "parse_limit",
]

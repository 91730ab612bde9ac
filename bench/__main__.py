"""Run the programs that are named, else all but the long ones: one line per figure on stdout, exit code 1 if any is
missed."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable

from bench.measure import Figure, NotMeasured

PROGRAMS = (
    "context_cost",
    "context_ratio",
    "startup",
    "run_startup",
    "adapters",
    "probe_cost",
    "listing",
    "many_ranks",
    "fleet",
    "glm_step",
    "llama_step",
    "decoder_step",
    "base",
    "collectives",
)
LONG = ("ranks_8000", "pages", "rows", "site")
"""Minutes, gigabytes or a browser: only if named."""

_EPILOG = f"Programs: {', '.join(PROGRAMS)}. Long ones: {', '.join(LONG)}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__, epilog=_EPILOG)
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    names = parser.parse_args(arguments).names
    unknown = [name for name in names if name not in PROGRAMS + LONG]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are: {', '.join(PROGRAMS + LONG)}", file=sys.stderr)
        return 2
    _print_line("FIGURE", "VALUE", "TARGET", "VERDICT", "HOW")
    figures = [figure for name in names or PROGRAMS for figure in _measured(name)]
    return 1 if any(figure.passed is False for figure in figures) else 0


def _measured(name: str) -> Iterable[Figure]:
    try:
        for figure in importlib.import_module(f"bench.{name}").measure():
            _print_figure(figure)
            yield figure
    except NotMeasured as error:
        figure = Figure(name, "none", "", passed=False, how=f"not measured: {error}")
        _print_figure(figure)
        yield figure


def _print_figure(figure: Figure) -> None:
    _print_line(figure.name, figure.value, figure.target, figure.verdict, figure.how)
    for line in figure.details:
        print(f"    {line}", flush=True)


def _print_line(name: str, value: str, target: str, verdict: str, how: str) -> None:
    print(f"{name:<20} {value:>22}  {target:>8}  {verdict:<7}  {how}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

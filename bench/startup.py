"""`flagperf --help` and `flagperf cases list` against a hello-world of click, in a fresh light install."""

from __future__ import annotations

import functools
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.measure import Figure, NotMeasured, interleaved, seconds_of

NUM_STARTS = 15
LIMIT = 4.0
"""By wall time and by CPU time, for each command: most of it are imports, and the hello-world has click's alone."""
COMMANDS = {"startup_help": ("--help",), "startup_cases": ("cases", "list")}
NUM_NAMED = 12

HELLO = """\
import click


@click.command()
def hello() -> None:
    click.echo("hello")


hello()
"""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        python = light_install(Path(folder) / "venv")
        script = Path(folder) / "hello.py"
        script.write_text(HELLO)
        flagperf, hello = str(python.with_name("flagperf")), [str(script)]
        commands = {name: [flagperf, *words] for name, words in COMMANDS.items()} | {"hello": [str(python), *hello]}
        programs = {name: functools.partial(start, command) for name, command in commands.items()}
        starts = interleaved(programs, NUM_STARTS)
        for name in COMMANDS:
            wall, cpu = ratios(starts[name], starts["hello"])
            is_within = max(wall, cpu) <= LIMIT
            details = () if is_within else _imports(str(python), commands[name], hello)
            how = f"wall time, least of {NUM_STARTS} interleaved starts each, light install; by CPU time {cpu:.2f}"
            yield Figure(name, f"{wall:.2f}", f"<= {LIMIT:g}", is_within, how, details)


class Start(msgspec.Struct, frozen=True):
    wall_seconds: float
    cpu_seconds: float


def start(command: Sequence[str]) -> Start:
    before = _children_cpu_seconds()
    wall_seconds = seconds_of(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))
    return Start(wall_seconds, _children_cpu_seconds() - before)


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ratios(starts: Sequence[Start], others: Sequence[Start]) -> tuple[float, float]:
    """By wall and by CPU time, least over least."""
    wall = min(each.wall_seconds for each in starts) / min(each.wall_seconds for each in others)
    return wall, min(each.cpu_seconds for each in starts) / min(each.cpu_seconds for each in others)


def light_install(venv: Path) -> Path:
    """The python of a new virtual environment that holds this repository without extras."""
    python, repository = venv / "bin" / "python", Path(__file__).parent.parent
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(repository)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise NotMeasured(f"`{' '.join(command)}` failed: {done.stderr.strip()[-300:]}")
    return python


def _imports(python: str, flagperf: Sequence[str], hello: Sequence[str]) -> tuple[str, ...]:
    """The most expensive imports of flagperf. What hello imports too counts nothing."""
    known = {name for name, _, _ in _import_times(python, hello)}
    totals: dict[str, int] = {}
    # By depth. A module is printed after those that it imports, and takes what they took at its depth plus one.
    unclaimed: dict[int, int] = {}
    for name, depth, own_us in _import_times(python, flagperf):
        totals[name] = (0 if name in known else own_us) + unclaimed.pop(depth + 1, 0)
        unclaimed[depth] = unclaimed.get(depth, 0) + totals[name]
    slowest = sorted(totals.items(), key=lambda item: -item[1])[:NUM_NAMED]
    return tuple(f"{spent_us / 1e3:6.1f} ms import {name}, with what it imports" for name, spent_us in slowest)


def _import_times(python: str, command: Sequence[str]) -> list[tuple[str, int, int]]:
    """Name, depth and microseconds of its own, as `-X importtime` prints them."""
    done = subprocess.run([python, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    rows = (line.removeprefix("import time:").split("|") for line in done.stderr.splitlines()[1:])
    return [(name.strip(), (len(name) - len(name.lstrip())) // 2, int(own_us)) for own_us, _, name in rows]

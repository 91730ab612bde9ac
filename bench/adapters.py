"""`flagperf cases list` with 20 adapters installed against one, both in a fresh light install of this repository."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Figure, NotMeasured, interleaved
from bench.startup import Start, light_install, ratios, start
from flagperf.cli.vendors import write_adapter

NUM_ADAPTERS = 20
NUM_STARTS = 15
LIMIT = 1.5


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        one, twenty = (_install(Path(folder), num_adapters) for num_adapters in (1, NUM_ADAPTERS))
        starts = interleaved({"one": lambda: _list_cases(one), "twenty": lambda: _list_cases(twenty)}, NUM_STARTS)
    ratio, _ = ratios(starts["twenty"], starts["one"])
    how = f"wall time with {NUM_ADAPTERS} adapters over one, least of {NUM_STARTS} interleaved starts each"
    yield Figure("adapters", f"{ratio:.2f}", f"<= {LIMIT}", ratio <= LIMIT, how)


def _install(folder: Path, num_adapters: int) -> Path:
    """The flagperf of a new environment with so many adapters, as `vendors new` writes them."""
    python = light_install(folder / f"venv{num_adapters}")
    packages = [folder / f"flagperf-{num_adapters}-{index}" for index in range(num_adapters)]
    for index, package in enumerate(packages):
        write_adapter(f"bench{index}", package)
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    done = subprocess.run([*install, *map(str, packages)], capture_output=True, text=True)
    if done.returncode:
        raise NotMeasured(f"pip failed: {done.stderr.strip()[-300:]}")
    return python.with_name("flagperf")


def _list_cases(flagperf: Path) -> Start:
    return start([str(flagperf), "cases", "list"])

"""Pages with charts of large runs: 4,000 ranks, and 100,000 steps."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.many_ranks import Usage, usage_of
from bench.measure import Figure

RUNS = {"page_4000_ranks": (500, 750), "page_100000_steps": (1, 100_000)}
"""Name -> nodes of eight devices, and steps."""
SECONDS_LIMIT, BYTES_LIMIT = 10, 3_000_000


def measure() -> Iterator[Figure]:
    for name, sizes in RUNS.items():
        usage, num_bytes = _page(*sizes)
        how = "a page with charts from its bundle: CPU time of its one process; the command then verifies the bundle"
        is_within = usage.cpu_seconds <= SECONDS_LIMIT
        yield Figure(name, f"{usage.cpu_seconds:.1f} s", f"<= {SECONDS_LIMIT}", is_within, how, (str(usage),))
        size = f"{num_bytes / 1e6:.2f} MB"
        yield Figure(f"{name}_size", size, f"<= {BYTES_LIMIT / 1e6:.0f}", num_bytes <= BYTES_LIMIT, "size of the page")


def _page(num_nodes: int, num_steps: int) -> tuple[Usage, int]:
    with tempfile.TemporaryDirectory() as folder:
        usage_of([sys.executable, "-m", "bench.made_up_run", folder, str(num_nodes), str(num_steps)])
        bundle = str(next(Path(folder).iterdir()))
        usage_of([sys.executable, "-m", "bench.many_ranks", bundle])
        page = Path(folder) / "page.html"
        return usage_of([sys.executable, "-m", "bench.pages", bundle, str(page)]), page.stat().st_size


def _write(bundle: Path, page: Path) -> None:
    from flagperf.bundle.bundle import read_bundle
    from flagperf_publish.pages.layouts import to_html, web_document
    from flagperf_publish.pages.timeline import read_course

    recorded = read_bundle(bundle)
    courses = {recorded.run.id: read_course(bundle, recorded.run)}
    page.write_text(to_html(web_document([recorded], "en", courses=courses)))


if __name__ == "__main__":
    _write(*map(Path, sys.argv[1:]))

"""Recorded runs for the tests of pages with charts: those of tests/bundles, and made-up ones that measured rows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
from recorded_bundles import recorded_bundle

from flagperf.api import Device, Peak
from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.run_record import Ending, RecordedRun
from flagperf.metrics.entry import Metric
from flagperf.metrics.registry import vocabulary
from flagperf.metrics.rows import MeasuredRow
from flagperf.spec.job import PlannedNode
from flagperf.spec.manifest_reading import read_manifest
from flagperf.spec.values import Resolved
from flagperf_publish.pages.layouts import to_html, web_document
from flagperf_publish.pages.timeline import RunCourse, read_course
from run_builders import make_run, minimal_job

REPOSITORY = Path(__file__).parents[2]
CASES = REPOSITORY / "cases" / "flagperf_cases"

NAMES = {"llama2_70b": "llama2_70b_2x2", "failed": "timed_out"}
"""Names that these tests have for bundles which have others."""


def bundle_path(name: str) -> Path:
    return recorded_bundle(NAMES.get(name, name))


def recorded(name: str) -> RecordedRun:
    """A run of tests/bundles, or one of kind base or operators."""
    made = {"base": base_run, "operators": operators_run}
    return made[name]() if name in made else read_bundle(bundle_path(name))


def courses(*runs: RecordedRun) -> dict[str, RunCourse]:
    return {each.run.id: read_course(Path(each.path), each.run) for each in runs if Path(each.path).is_dir()}


def html_page(*names: str, lang: Any = "en", **options: Any) -> str:
    runs = [recorded(name) for name in names]
    document = web_document(runs, lang, courses=courses(*runs), allow_simulated=True, **options)
    return to_html(document)


# --- rows -----------------------------------------------------------------------------------------------------------

PEAKS = (
    Peak("Card A", "fp16", 300e12, "manual", "high"),
    Peak("Card A", "fp32", 20e12, "manual", "high"),
    Peak("Card A", "memory_bandwidth", 1.6e12, "manual", "high"),
)


def measured_row(name: str, labels: dict[str, str], seconds: float = 1e-3, **more: Any) -> MeasuredRow:
    return MeasuredRow(name, labels, "s", more.pop("rank", 0), 30, seconds, seconds, seconds, **more)


def rows_run(case: str, rows: list[MeasuredRow], metrics: tuple[Metric, ...] = ()) -> RecordedRun:
    manifest = read_manifest(CASES / case / "case.toml", vocabulary())
    cards = tuple(Device(f"card-{slot}", "Card A", "A", slot, 64 << 30) for slot in range(4))
    nodes = (PlannedNode(0, "127.0.0.1", "host", cards, 8),)
    values = {key: value for key, value in manifest.values.items() if not isinstance(value, dict)}
    job = minimal_job(
        run_id=case, case=case, kind=manifest.kind, peaks=PEAKS, nodes=nodes, memory_scope="device",
        config=Resolved(values, dict.fromkeys(values, "case"), {}),
    )  # fmt: skip
    run = msgspec.structs.replace(
        make_run(f"20260101T000000Z-{case}-acme-1x4-abc123"),
        manifest=manifest, job=job, rows=tuple(rows), metrics=metrics, ending=Ending("succeeded"),
    )  # fmt: skip
    return RecordedRun(run, (), f"runs/{run.id}")


def base_run() -> RecordedRun:
    """Every chart that rows have: figures, a sweep, pairs of cards, the roofline."""
    rows = [
        measured_row("stream", {"pattern": pattern, "bytes": str(1 << bits)}, 1e-9 * 2**bits, work={"bytes": 1 << bits})
        for pattern in ("copy", "triad")
        for bits in range(12, 31, 2)
    ]
    for a, b in itertools.permutations(range(4), 2):
        ends = {"from": str(a), "to": str(b), "bytes": "1048576"}
        rows.append(measured_row("pair", ends, 1e-4 * (1 + a + b), work={"bytes": 1 << 30}))
    for name, size in itertools.product(("fp16", "fp32"), (1024, 4096, 8192)):
        labels, work = {"precision": name, "shape": f"{size}x{size}x{size}"}, {"flops": size**3, "bytes": size**2 * 6}
        rows.append(measured_row("gemm", labels, 1e-3 * size / 1024, work=work, limits={"flops": name}, share=0.5))
    figures = (
        Metric(name, "TFLOPS", name, "device", value, inputs={"peak": peak, "share": value * 1e12 / peak})
        for name, value, peak in (("gemm_fp16", 251.5, 300e12), ("gemm_fp32", 17.25, 20e12))
    )
    return rows_run("gemm", rows, tuple(figures))


OPERATORS = ("mm", "softmax", "layer_norm", "gelu", "add", "cos", "topk", "sort", "exp", "bmm", "rsqrt")


def operators_run() -> RecordedRun:
    rows = []
    for (place, name), dtype in itertools.product(enumerate(OPERATORS), ("fp16", "fp32")):
        labels = {"group": "pointwise", "shape": "a=4096 b=11008", "dtype": dtype, "library": "eager"}
        more = {"work": {"flops": 10**9 * (place + 1), "bytes": 10**8}, "limits": {"flops": dtype}}
        rows.append(
            measured_row("operators", {"operator": name, **labels}, 1e-5 * (place + 1), share=0.9 - place / 20, **more)
        )
    return rows_run("operators", rows)

"""A minimal job, manifest and run. The builders of other folders change what their tests are about."""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.api import Device, precision
from flagperf.bundle.run_record import STORE_SCHEMA, Run
from flagperf.spec.job import Job, PlannedNode, RunSpec
from flagperf.spec.manifest import Manifest, Page, Profile
from flagperf.spec.values import Resolved


def minimal_job(**changes: Any) -> Job:
    device = Device("cpu:0", "Some CPU", "CPU", 0, 1 << 34)
    job = Job(
        run_id="r",
        case="demo",
        case_version=1,
        kind="training",
        case_target="demo.case:run",
        profile="tiny",
        precision=precision("fp32"),
        vendor="cpu",
        vendor_title={"en": "CPU"},
        adapter="flagperf 0.1.0",
        config=Resolved({"precision": "fp32"}, {"precision": "case"}, {}),
        nodes=(PlannedNode(0, "127.0.0.1", "host", (device,), 2),),
        master_address="127.0.0.1",
        master_port=29500,
        host_workers=1,
        memory_scope="host",
        has_allocator=False,
        peaks=(),
        accept_low_peaks=False,
        oversubscribed=False,
        sample_seconds=1.0,
        timeout_seconds=None,
        data_dir=None,
        data_files=(),
    )
    return msgspec.structs.replace(job, **changes)


def minimal_manifest(**changes: Any) -> Manifest:
    manifest = Manifest(
        name="demo",
        version=1,
        kind="training",
        title={"en": "Demo"},
        task={"en": "Demo"},
        model="none",
        dataset="none",
        precisions=("fp32",),
        default_profile="tiny",
        page=Page((), ()),
        values={"precision": "fp32"},
        profiles={"tiny": Profile({"en": "small"})},
    )
    return msgspec.structs.replace(manifest, **changes)


def make_run(run_id: str) -> Run:
    job = minimal_job(run_id=run_id)
    return Run(STORE_SCHEMA, run_id, "2026-01-01T00:00:00+00:00", "0.1.0", RunSpec("demo"), job, minimal_manifest())

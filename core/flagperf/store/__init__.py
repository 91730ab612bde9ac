"""Bundles: one folder per run, written atomically, sealed by a MANIFEST, found again by id."""

from flagperf.store.bundle import (
    PARENT_EVENTS,
    RUN_FILE,
    broken_files,
    check_writable,
    create_bundle,
    environment_fingerprint,
    job_fingerprint,
    planned_fields,
    read_bundle,
    read_record,
    seal,
    unreadable_files,
    write_run,
    writing,
)
from flagperf.store.curves import CURVE_SCHEMA, curve_of_run, curve_text, find_curve, read_curve
from flagperf.store.listing import RunLine, find_bundle, find_run, list_runs, runs_directory
from flagperf.store.run import EXIT_CODES, STORE_SCHEMA, Ending, RecordedRun, Run, Status, gated

__all__ = [
    "CURVE_SCHEMA", "EXIT_CODES", "PARENT_EVENTS", "RUN_FILE", "STORE_SCHEMA", "Ending", "RecordedRun", "Run",
    "RunLine", "Status", "broken_files", "check_writable", "create_bundle", "curve_of_run", "curve_text",
    "environment_fingerprint", "find_bundle", "find_curve", "find_run", "gated", "job_fingerprint", "list_runs",
    "planned_fields", "read_bundle", "read_curve", "read_record", "runs_directory", "seal", "unreadable_files",
    "write_run", "writing",
]  # fmt: skip

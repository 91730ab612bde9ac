"""Runs that bring markup, quotes and control characters in every text that their types allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.spec.node_facts import NodeFacts

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>\"'>\x1b[31m\u202e"
SHOWN = "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>\"'>\\x1b[31m\\u202e"

KEPT = {
    "kind", "columns", "rows", "metric_versions", "metric", "profile", "default_profile", "page_names", "created",
    "mfu_formula", "formula", "key", "sequence_key", "optimisation_keys", "parts", "profiles", "schema",
}  # fmt: skip
"""Fields that are names of other things: a run with unknown ones has no page at all, or is another run."""


def hostile(value: Any, field: str = "") -> Any:
    """With HOSTILE behind every text, and as a name in tables that others fill. Sizes stay sizes, so that sweeps are
    drawn."""
    if field in KEPT:
        return value
    if isinstance(value, str):
        return value + HOSTILE
    if isinstance(value, list):
        return [hostile(each) for each in value]
    if isinstance(value, dict):
        added = {HOSTILE: HOSTILE} if field in ("packages", "versions", "labels", "variables", "layers") else {}
        return {name: each if name == "bytes" else hostile(each, name) for name, each in value.items()} | added
    return value


def poisoned(plain: Any, kind: Any) -> Any:
    """As much of it hostile as its types allow: whole fields where possible, else their parts, else nothing."""
    found = msgspec.json.decode(msgspec.json.encode(plain))

    def fits(candidate: Any) -> bool:
        try:
            msgspec.convert(candidate, kind)
        except msgspec.ValidationError:
            return False
        return True

    assert fits(found)
    return msgspec.convert(_poison(found, lambda candidate: fits(candidate)), kind)


def _poison(root: Any, fits: Callable[[Any], bool]) -> Any:
    def attempt(container: Any, key: Any, field: str) -> None:
        old = container[key]
        new = hostile(old, field)
        if new == old:
            return
        container[key] = new
        if fits(root):
            return
        container[key] = old
        if isinstance(old, dict):
            for name in list(old):
                attempt(old, name, name)
        elif isinstance(old, list):
            for index in range(len(old)):
                attempt(old, index, "")

    for name in list(root):
        attempt(root, name, "" if name == "rows" else name)  # measured rows; those of a page are names of metrics
    return root


def poisoned_run(recorded: RecordedRun) -> RecordedRun:
    run: Run = poisoned(recorded.run, Run)
    manifest, plain = run.manifest, recorded.run.manifest
    manifest = msgspec.structs.replace(
        manifest,
        qualities=with_names(manifest.qualities, plain.qualities),
        figures=with_names(manifest.figures, plain.figures),
    )
    metrics = with_names(run.metrics, recorded.run.metrics)
    nodes = tuple(poisoned(node, NodeFacts) for node in recorded.nodes)
    run = msgspec.structs.replace(run, metrics=metrics, manifest=manifest)
    return msgspec.structs.replace(recorded, run=run, nodes=nodes)


def with_names(hostile: tuple[Any, ...], plain: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of metrics: columns of the page name them."""
    return tuple(msgspec.structs.replace(new, name=old.name) for new, old in zip(hostile, plain, strict=True))

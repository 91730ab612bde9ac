"""Runs that bring markup, quotes and control characters in every text that their types allow."""

from __future__ import annotations

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
    """Make as much of it hostile as its types allow: whole fields where possible, else their parts, else nothing."""
    root = msgspec.json.decode(msgspec.json.encode(plain))

    def poison(container: Any, key: Any, field: str) -> None:
        old = container[key]
        container[key] = hostile(old, field)
        if container[key] == old or fits(root, kind):
            return
        container[key] = old
        if isinstance(old, dict | list):
            for name in list(old) if isinstance(old, dict) else range(len(old)):
                poison(old, name, name if isinstance(old, dict) else "")

    assert fits(root, kind)
    for name in list(root):
        poison(root, name, "" if name == "rows" else name)  # measured rows; those of a page are names of metrics
    return msgspec.convert(root, kind)


def fits(candidate: Any, kind: Any) -> bool:
    try:
        msgspec.convert(candidate, kind)
    except msgspec.ValidationError:
        return False
    return True


def poisoned_run(recorded: RecordedRun) -> RecordedRun:
    plain, run = recorded.run, poisoned(recorded.run, Run)
    named = {name: with_names(getattr(run.manifest, name), getattr(plain.manifest, name)) for name in NAMED}
    manifest = msgspec.structs.replace(run.manifest, **named)
    run = msgspec.structs.replace(run, metrics=with_names(run.metrics, plain.metrics), manifest=manifest)
    return RecordedRun(run, tuple(poisoned(node, NodeFacts) for node in recorded.nodes), recorded.path)


NAMED = ("qualities", "figures")


def with_names(hostile: tuple[Any, ...], plain: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of metrics: columns of the page name them."""
    return tuple(msgspec.structs.replace(new, name=old.name) for new, old in zip(hostile, plain, strict=True))

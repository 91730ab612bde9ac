"""Memory estimate, operators to record or replay, libraries."""

from __future__ import annotations

import importlib
from pathlib import Path

import msgspec

from flagperf.api import TORCH_LIBRARIES, EstimateMemory, Recording
from flagperf.bundle.operator_file import read_operators
from flagperf.errors import BadInput, unknown_name
from flagperf.kinds import KINDS
from flagperf.plugins.installed import Case, Plugins
from flagperf.plugins.loading import ask
from flagperf.spec.job import RunSpec
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import Resolved, flatten
from flagperf.text import flagperf_command


class MemoryEstimate(msgspec.Struct, frozen=True):
    """Memory that the fullest rank will need, by the case. `total_bytes` is what the card has; None if unknown."""

    parts: dict[str, int]
    total_bytes: int | None
    total_source: str

    @property
    def used_bytes(self) -> int:
        return sum(self.parts.values())

    @property
    def share(self) -> float | None:
        """Return the share of the card that is used; None where its size is unknown."""
        return self.used_bytes / self.total_bytes if self.total_bytes else None


def estimate_memory(case: Case, config: Resolved, total_bytes: int | None, source: str) -> MemoryEstimate | None:
    """Return None for a case that does not estimate."""
    reference = case.manifest.estimate
    if reference is None:
        return None

    def estimate() -> object:
        module, _, name = reference.partition(":")
        function: EstimateMemory = getattr(importlib.import_module(module), name)
        return function(config.values)

    parts = ask(case.plugin, reference, estimate, dict[str, int])
    return MemoryEstimate(parts, total_bytes, source)


RECORDED_STEPS = 3

MAX_RECORDED_STEPS = 1000


def steps_to_record(spec: RunSpec, manifest: Manifest) -> int:
    """Return how many steps to record, 0 for none. Raises BadInput if the case has no steps."""
    if not spec.record_operators:
        if spec.record_steps is not None:
            raise BadInput("--record-steps says how many steps --record-operators records; give both")
        return 0
    if not KINDS[manifest.kind].has_steps:
        raise BadInput(f"--record-operators: case {manifest.name} is of kind {manifest.kind}, which has no steps")
    steps = RECORDED_STEPS if spec.record_steps is None else spec.record_steps
    if not 1 <= steps <= MAX_RECORDED_STEPS:
        raise BadInput(f"--record-steps must be at least 1 and at most {MAX_RECORDED_STEPS:,}; got {steps}")
    return steps


def recording_to_replay(spec: RunSpec, manifest: Manifest) -> Recording | None:
    if spec.replay is None:
        if spec.replay_rank is not None:
            raise BadInput("--from-rank chooses a rank of the run that --from names; give both")
        return None
    if not KINDS[manifest.kind].replays:
        command = flagperf_command("run", "operators", "--from", Path(spec.replay).name)
        raise BadInput(f"--from: case {manifest.name} of kind {manifest.kind} replays no operators; use `{command}`")
    return read_operators(Path(spec.replay), spec.replay_rank or 0)


def operator_libraries(manifest: Manifest, config: Resolved, plugins: Plugins) -> dict[str, str]:
    """Return library -> distribution and version of its plugin, without what torch has itself.

    Raises BadInput for a name that no plugin gives.
    """
    if manifest.libraries_key is None:
        return {}
    names = [name for name in dict(flatten(config.values))[manifest.libraries_key] if name not in TORCH_LIBRARIES]
    known = plugins.operator_libraries() if names else {}
    for name in names:
        if name not in known:
            where_from = "(libraries come with plugins: docs/add-an-operator.md)"
            hint = plugins.hint("flagperf_operator_libraries") or where_from
            raise unknown_name("operator library", str(name), [*TORCH_LIBRARIES, *known], hint)
    return {name: known[name].adapter for name in names}

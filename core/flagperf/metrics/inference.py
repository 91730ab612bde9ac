"""How fast an inference case goes through its data: by its engine, over real tokens (or samples)."""

from __future__ import annotations

from collections.abc import Sequence

from flagperf.metrics.finding import Absent, Findings
from flagperf.metrics.mfu import counts_tokens
from flagperf.metrics.ranks import RankRecord
from flagperf.metrics.throughput import throughput
from flagperf.metrics.window import Window
from flagperf.spec import Manifest

OF_FRAMEWORK = ("p_val_whole", "p_val_core")
OF_ENGINE = ("p_infer_whole", "p_infer_core", "p_infer_padded")
NAMES = (*OF_FRAMEWORK, *OF_ENGINE)


def rates(manifest: Manifest, ranks: Sequence[RankRecord], window: Window | Absent) -> Findings:
    unmeasured = Absent("not_applicable", "the case computes by its engine alone, not by a plain framework beside it")
    framework = dict.fromkeys(OF_FRAMEWORK, unmeasured)
    if isinstance(window, Absent):
        return {**framework, **dict.fromkeys(OF_ENGINE, window)}
    in_tokens = counts_tokens(manifest)
    real = window.per_step(lambda step: step.tokens if in_tokens else step.samples)
    padded = window.per_step(lambda step: step.tokens + step.padded_tokens)
    core = window.step_computes_ns
    inputs = {"timing": ", ".join(window.timing), "engine": _engine(manifest, ranks)}
    return {
        **framework,
        "p_infer_whole": throughput(window, real, lambda rank: rank.whole_ns),
        "p_infer_core": throughput(window, real, lambda rank: rank.core_ns, core, inputs=inputs),
        "p_infer_padded": throughput(window, padded, lambda rank: rank.core_ns, core)
        if in_tokens
        else Absent("not_applicable", "the case counts no tokens"),
    }


def no_rates(why: Absent) -> Findings:
    return dict.fromkeys(NAMES, why)


def _engine(manifest: Manifest, ranks: Sequence[RankRecord]) -> str:
    """As the page has it: `engine (torch 2.6)`."""
    found = ranks[0].started.framework if ranks else {}
    versions = ", ".join(f"{name} {version}" for name, version in found.items() if name == "torch")
    return f"{manifest.engine} ({versions})" if versions else manifest.engine

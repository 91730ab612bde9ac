"""Who may import whom, decided from the source alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STAGES = (
    (
        "attribute_docs",
        "commands",
        "errors",
        "escapes",
        "kinds",
        "lazy_names",
        "messages",
        "robust",
        "units",
        "version",
    ),
    ("api", "files"),
    ("kit", "events"),
    ("hookspecs", "spec"),
    ("metrics",),
    ("plugins", "store"),
    ("fleet", "plausibility", "worker", "agent"),
    ("compare", "plan"),
    ("launch", "pages", "report"),
    ("run", "verify", "schemas"),
    ("abandoned", "export", "redact", "site"),
    ("cli",),
    ("__main__",),
)
"""A part of core may import itself and parts of earlier stages, never one of its own stage."""

PROGRAMS = ("agent", "worker")
"""They run in processes of their own, most of them on other machines: nothing of the command imports them."""

STAGE_OF = {part: stage for stage, parts in enumerate(STAGES) for part in parts}
DEFAULTS_OF = {"api": "kit"}
"""A method of the contract may do by default what the kit does: it imports that inside the function."""
OUTSIDE = frozenset({"api", "kit", "hookspecs", "errors", "units"})
"""What a vendor may import, and so all that `builtin` may."""
FOR_CASES = frozenset({"api", "hookspecs", "errors", "worker"})
HEAVY = frozenset({"torch", "accelerate", "transformers", "peft", "pynvml"})
MADE_OF_TORCH = (
    "flagperf.worker.accelerator",
    "flagperf.worker.gradient_scaler", "flagperf.worker.recording",
    *(
        f"flagperf.testing.torch_device.{name}"
        for name in (
            "attention", "autocast", "collectives", "device", "functions", "memory", "module", "pinning", "queue",
            "tensor", "tf32",
        )
    ),
)  # fmt: skip
"""Modules whose classes extend a heavy package's. They are imported in functions, as that package is."""
IN_SIMULATION = "flagperf.worker.simulated"
"""The one module that reaches for testing: a worker of simulated cards needs a device to compute on."""


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    deferred: bool
    """Inside a function or for type checkers only."""


def module_name(path: Path, source_root: Path) -> str:
    parts = path.relative_to(source_root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def problems(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What this module imports and must not, one text each."""
    found = list(_imports(ast.parse(source), module, is_package))
    wrong = [f"{module}:{each.line}: {reason}" for each in found if (reason := _refusal(module, each))]
    if not module.startswith("flagperf_cases"):
        wrong += [
            f"{module}:{each.line}: {each.target} is imported with the module; do it in the function that needs it"
            for each in found
            if _is_heavy(each.target) and not each.deferred and module not in MADE_OF_TORCH
        ]
    return wrong


def _is_heavy(target: str) -> bool:
    return target.partition(".")[0] in HEAVY or target in MADE_OF_TORCH


def _refusal(module: str, found: Import) -> str:
    """Why `module` may not import this, empty where it may."""
    target = found.target
    if not _is_within(target, "flagperf") and not _is_within(target, "flagperf_cases"):
        return ""
    if _is_within(module, "flagperf_cases"):
        return _refusal_of_case(module, target)
    if _is_within(target, "flagperf_cases"):
        return "cases are found by their entry point, never imported"
    part, wanted = _part(module), _part(target)
    if wanted == "testing":
        is_allowed = part == "testing" or (module == IN_SIMULATION and found.deferred)
        return "" if is_allowed else "testing is imported by nothing"
    if part in ("testing", wanted) or (found.deferred and DEFAULTS_OF.get(part) == wanted):
        return ""
    if not _is_within(module, "flagperf") or part == "builtin":
        return "" if wanted in OUTSIDE else f"a vendor may import {_listed(OUTSIDE)}, not {wanted or 'flagperf itself'}"
    return _refusal_by_stage(part, wanted)


def _refusal_by_stage(part: str, wanted: str) -> str:
    if part == "":
        return "" if wanted in ("run", "lazy_names") else f"flagperf itself gives run_case and nothing of {wanted}"
    for name in (part, wanted):
        if name not in STAGE_OF:
            return f"{name or 'flagperf itself'} has no stage: find its place in STAGES"
    if wanted in PROGRAMS:
        return f"{wanted} is a program of its own, not a part of {part}"
    if STAGE_OF[wanted] < STAGE_OF[part]:
        return ""
    return f"{part} (stage {STAGE_OF[part]}) imports {wanted} (stage {STAGE_OF[wanted]})"


SHARED_BY_CASES = ("decoder",)
"""Packages beside the cases that are no case themselves."""


def _refusal_of_case(module: str, target: str) -> str:
    if _is_within(target, "flagperf_cases"):
        own, other = module.split(".")[1:2], target.split(".")
        is_shared = len(other) == 2 or other[1] in SHARED_BY_CASES
        return "" if is_shared or other[1:2] == own else f"{target} belongs to another case"
    wanted = _part(target)
    return "" if wanted in FOR_CASES else f"a case may import {_listed(FOR_CASES)}, not {wanted or 'flagperf itself'}"


def _imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[Import]:
    for node, deferred in _walk(tree, deferred=False):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, deferred) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, is_package)
            for alias in node.names:
                # `from flagperf import units` names a part; `from flagperf.units import gib` does not.
                target = f"{base}.{alias.name}" if base in ("flagperf", "flagperf_cases") else base
                yield Import(target, node.lineno, deferred)


def _walk(node: ast.AST, deferred: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield statement, True
                yield from _walk(statement, True)
            for statement in child.orelse:
                yield statement, inside
                yield from _walk(statement, inside)
        else:
            yield child, inside
            yield from _walk(child, inside)


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parents = module.split(".") if is_package else module.split(".")[:-1]
    kept = parents[: len(parents) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _part(module: str) -> str:
    """`plan` of `flagperf.plan.placement`, empty for flagperf itself, all of it for a module outside."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "flagperf" else top


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _listed(parts: frozenset[str]) -> str:
    return ", ".join(f"flagperf.{part}" for part in sorted(parts))

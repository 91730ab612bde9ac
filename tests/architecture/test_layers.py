"""Who may import whom, read from the sources: a module imports what stands above it, and its own package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = """
errors text units stats processes kinds messages
api files
kit events event_files
hookspecs spec
metrics
plugins
bundle
worker agent fleet plausibility
compare
plan report
run schemas
cli
"""
"""A part of core may import the parts of earlier lines, and those to its left on its own line."""

PLACE = {part: place for place, part in enumerate(LAYERS.split())}
PROGRAMS = {"worker", "agent"}
"""They run in processes of their own, most of them on other machines: nothing else imports them."""

FOR_ADAPTERS = {"api", "kit", "hookspecs", "errors", "units", "processes"}
FOR_CASES = {"api", "hookspecs", "errors", "worker"}
SHARED_BY_CASES = {"decoder"}
"""Packages beside the cases that are no case themselves."""

HEAVY = {"torch", "accelerate", "transformers", "peft", "pynvml"}
MADE_OF_TORCH = {"flagperf.worker.accelerator", "flagperf.worker.operator_recorder"}
"""Modules whose classes extend those of a heavy package. They are imported in functions, as that package is."""

IN_SIMULATION = ("flagperf.worker.__main__", "flagperf.testing.simulated_cards")
"""The one import of testing: a worker of simulated cards needs a device to compute on."""

DOORS = {"flagperf.api", "flagperf.kit", "flagperf.worker", "flagperf.testing", "flagperf.testing.torch_device"}
"""The packages that give names. An import from any other names the module that has the thing."""


EMPTY = {
    ".".join(path.parent.relative_to(ROOT / "core").parts)
    for path in (ROOT / "core").rglob("__init__.py")
    if not path.read_text().strip()
}


def imports(source: str) -> Iterator[tuple[str, bool]]:
    """Yield what a source imports, and whether it does so in a function or for type checkers alone."""

    def walk(node: ast.AST, deferred: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, deferred) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, "imports are absolute here"
                names = [alias.name for alias in child.names]
                whole = child.module in ("flagperf", "flagperf_cases") or child.module in EMPTY
                yield from ((f"{child.module}.{name}" if whole else str(child.module), deferred) for name in names)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from walk(child, deferred or inside or typing)

    return walk(ast.parse(source), deferred=False)


def modules(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*.py")):
        if "new_vendor" not in path.parts:
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path.read_text()


def part_of(module: str) -> str:
    return ".".join(module.split(".")[1:2])


CORE = [(name, source) for name, source in modules(ROOT / "core") if name.split(".")[0] == "flagperf"]
LIBRARY = [(name, source) for name, source in CORE if part_of(name) not in ("", "testing", "builtin", "__main__")]


def refused(found: list[str]) -> None:
    assert not found, "\n".join(found)


def test_every_part_of_core_has_its_place() -> None:
    assert {part_of(name) for name, _ in LIBRARY} == set(PLACE)


def test_a_part_imports_only_what_stands_above_it() -> None:
    refused(
        [
            f"{name} imports {target}"
            for name, source in LIBRARY
            for target, _ in imports(source)
            if target.split(".")[0] == "flagperf"
            and part_of(target) != part_of(name)
            and (name, target) != IN_SIMULATION
            and target != "flagperf.version"
            and (part_of(target) in PROGRAMS or PLACE.get(part_of(target), 99) >= PLACE[part_of(name)])
        ]
    )


def test_core_imports_neither_publish_nor_a_case_and_has_no_markup() -> None:
    refused(
        [
            f"{name} imports {target}"
            for name, source in CORE
            for target, _ in imports(source)
            if target.split(".")[0] in ("flagperf_publish", "flagperf_cases")
        ]
    )
    refused([name for name, source in CORE if any(f"<{tag}" in source for tag in ("div", "table", "svg"))])


def test_only_doors_give_names() -> None:
    """An import from any other package names the module that has the thing."""
    packages = {name for name, _ in CORE if (ROOT / "core" / Path(*name.split(".")) / "__init__.py").exists()}
    assert packages - EMPTY - DOORS <= {"flagperf", "flagperf.builtin", "flagperf.cli", "flagperf.messages"}


def test_a_vendor_imports_only_what_is_for_adapters() -> None:
    vendors = [each for root in ROOT.glob("plugins/*/src") for each in modules(root)]
    vendors += [(name, source) for name, source in CORE if part_of(name) == "builtin"]
    refused(
        [
            f"{name} imports {target}"
            for name, source in vendors
            for target, _ in imports(source)
            if target.split(".")[0] == "flagperf" and part_of(target) not in FOR_ADAPTERS | {"builtin"}
        ]
    )


def test_a_case_imports_only_what_is_for_cases_and_no_other_case() -> None:
    found = []
    for name, source in modules(ROOT / "cases"):
        for target, _ in imports(source):
            top, _, rest = target.partition(".")
            other = rest.partition(".")[0]
            is_package = (ROOT / "cases/flagperf_cases" / other).is_dir()
            is_other = top == "flagperf_cases" and is_package and other not in {part_of(name), *SHARED_BY_CASES}
            if is_other or (top == "flagperf" and part_of(target) not in FOR_CASES):
                found.append(f"{name} imports {target}")
    refused(found)


@pytest.mark.parametrize("root", ["core", *map(str, ROOT.glob("plugins/*/src"))])
def test_a_framework_is_imported_in_the_function_that_needs_it(root: str) -> None:
    refused(
        [
            f"{name} imports {target} with the module"
            for name, source in modules(ROOT / root)
            if name not in MADE_OF_TORCH and not name.startswith("flagperf.testing.torch_device")
            for target, deferred in imports(source)
            if not deferred and (target.split(".")[0] in HEAVY or target in MADE_OF_TORCH)
        ]
    )


def test_sections_know_no_medium_and_renderers_know_no_run() -> None:
    found = []
    for name, source in [*CORE, *modules(ROOT / "core")]:
        for target, _ in imports(source):
            is_renderer = target == "flagperf.report.terminal" or target.startswith("flagperf_publish.render")
            if name.startswith("flagperf.report.sections.") and is_renderer:
                found.append(f"{name} imports {target}")
            known = ("flagperf.report.document", "flagperf.report.terminal", "flagperf.messages", "flagperf.text")
            known = (*known, "flagperf_publish.render")
            renders = name == "flagperf.report.terminal" or name.startswith("flagperf_publish.render.")
            if renders and target.startswith("flagperf") and not target.startswith(known):
                found.append(f"{name} imports {target}")
    refused(sorted(set(found)))

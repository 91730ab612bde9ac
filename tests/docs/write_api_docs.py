"""Writes docs/api.md from the source: what authors of adapters, cases and clusters meet, as it is written there."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from flagperf import api, hookspecs, kit, testing, worker
from flagperf.api import models
from flagperf.schemas import attributes_of, class_node, constants_of, module_node
from flagperf.testing import machine_folder

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
HEAD = """# API reference

<!-- Written by `make docs` from the source. -->

What an author meets, in the words of the source. How it goes together:
[add-a-vendor](add-a-vendor.md), [add-a-case](add-a-case.md).

"""
PACKAGES = {
    "Contract: flagperf.api": api,
    "Kit: flagperf.kit": kit,
    "Tests: flagperf.testing": testing,
    "Cases: flagperf.worker": worker,
}
TUNING = """Vendor tuning: data in the vendor's package, `<tuning folder>/<case>.toml`, for one card model and shape.

[[tuning]]
model = "A1-80GB"    # a name of models.toml
nodes = 1            # left out: any
devices = 8          # left out: any
profile = "standard" # that is the default
source = "where these values come from"
[tuning.values.training]  # tables and keys of the case, as `flagperf cases show CASE` lists them
batch_size = 96"""
FILES = {
    "models.toml": inspect.getdoc(models),
    "tuning/&lt;case&gt;.toml": TUNING,
    "Outputs of fake tools": inspect.getdoc(machine_folder),
}
Function = ast.FunctionDef


def render() -> str:
    sections = [_hooks(), *(_package(title, package) for title, package in PACKAGES.items()), _files()]
    return HEAD + "\n".join(sections)


def _hooks() -> str:
    functions = [node for node in module_node(hookspecs.__name__).body if isinstance(node, Function)]
    parts = [f"## Hooks: {hookspecs.__name__}\n", f"{_intended(inspect.getdoc(hookspecs))}\n"]
    parts += [_constant(each.declared, each.doc) for each in constants_of(hookspecs.__name__)]
    return "\n".join([*parts, *(f"### {node.name}\n\n{_lines(ast.get_docstring(node))}\n" for node in functions)])


def _package(title: str, package: ModuleType) -> str:
    names = sorted(package.__all__, key=lambda name: (not name[0].isupper(), name.lower()))
    parts = [_public(name, getattr(package, name), package) for name in names]
    return "\n".join([f"## {title}\n", f"{_intended(inspect.getdoc(package))}\n", *parts])


def _public(name: str, thing: Any, package: ModuleType) -> str:
    if isinstance(thing, type):
        return _class(name, thing)
    if callable(thing):
        return f"### {name}\n\n{_function(_function_node(thing))}"
    return f"### {name}\n\n{_constant(*_constant_of(name, package))}"


def _class(name: str, cls: type) -> str:
    node = class_node(cls)
    bases = [ast.unparse(base) for base in node.bases if ast.unparse(base) not in ("abc.ABC", "msgspec.Struct")]
    parts = [f"### {name}\n"]
    parts += [f"Extends `{', '.join(bases)}`.\n"] if bases else []
    parts += [f"{_intended(ast.get_docstring(node))}\n"] if ast.get_docstring(node) else []
    attributes = [_item(each.declared, each.doc) for each in attributes_of(cls)]
    methods = [_item(_signature(each), _method_doc(each)) for each in _methods(node)]
    tests = [f"- {each.name.removeprefix('test_').replace('_', ' ')}{_marks(each)}" for each in _tests(node)]
    return "\n".join([*parts, *(f"{chr(10).join(items)}\n" for items in (attributes, methods, tests) if items)])


def _methods(node: ast.ClassDef) -> Iterator[Function]:
    for each in node.body:
        if isinstance(each, Function) and not each.name.startswith(("_", "test_")) and not _is_fixture(each):
            yield each


def _tests(node: ast.ClassDef) -> Iterator[Function]:
    return (each for each in node.body if isinstance(each, Function) and each.name.startswith("test_"))


def _is_fixture(node: Function) -> bool:
    return any("fixture" in ast.unparse(each) for each in node.decorator_list)


def _marks(node: Function) -> str:
    marks = [ast.unparse(each).removeprefix("pytest.mark.") for each in node.decorator_list]
    shown = [mark for mark in marks if mark in ("hardware", "run")]
    return f" (`{shown[0]}`)" if shown else ""


def _method_doc(node: Function) -> str:
    decorators = [ast.unparse(each) for each in node.decorator_list]
    kind = ["Abstract."] if "abc.abstractmethod" in decorators else []
    return " ".join([*kind, ast.get_docstring(node) or ""]).strip()


def _signature(node: Function) -> str:
    if any(ast.unparse(each) in ("property", "functools.cached_property") for each in node.decorator_list):
        return f"{node.name}: {ast.unparse(node.returns) if node.returns else 'Any'}"
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix(", ")
    return f"{node.name}({arguments}) -> {ast.unparse(node.returns) if node.returns else 'Any'}"


def _function_node(function: Any) -> Function:
    body = module_node(function.__module__).body
    return next(node for node in body if isinstance(node, Function) and node.name == function.__name__)


def _function(node: Function) -> str:
    return f"`{_signature(node)}`\n\n{_intended(ast.get_docstring(node))}\n".rstrip() + "\n"


def _constant_of(name: str, package: ModuleType) -> tuple[str, str]:
    for statement in module_node(package.__name__).body:
        if isinstance(statement, ast.ImportFrom) and name in [each.name for each in statement.names]:
            importlib.import_module(str(statement.module))
            found = next(each for each in constants_of(str(statement.module)) if each.name == name)
            return found.declared, found.doc
    raise LookupError(name)


def _constant(declared: str, doc: str) -> str:
    return f"```python\n{declared}\n```\n\n{doc}\n" if doc else f"```python\n{declared}\n```\n"


def _item(head: str, doc: str) -> str:
    text = "\n".join(f"  {line}".rstrip() for line in doc.splitlines())
    return f"- `{head}`\\\n{text}" if doc else f"- `{head}`"


def _lines(doc: str | None) -> str:
    """Each sentence that ends a line of a hook's docstring says one thing."""
    pairs = _pairs(_intended(doc).splitlines())
    return "\n".join(f"{line}\\" if line.endswith(".") and following else line for line, following in pairs)


def _pairs(lines: list[str]) -> list[tuple[str, str]]:
    return list(zip(lines, [*lines[1:], ""], strict=True))


def _intended(doc: str | None) -> str:
    """A docstring as Markdown: what is indented or between backticks in it is code there too."""
    code = re.compile(r"(`[^`]*`|^ {4}.*$)", re.MULTILINE)
    parts = code.split(doc or "")
    return "".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def _files() -> str:
    parts = ["## Files\n"]
    for title, text in FILES.items():
        first, _, rest = (text or "").partition("\n\n")
        is_example = rest.startswith("[[")
        parts.append(f"### {title}\n\n{_intended(first)}\n")
        parts.append(f"```toml\n{rest}\n```\n" if is_example else f"{rest}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render())

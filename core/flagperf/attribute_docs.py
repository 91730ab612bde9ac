"""Texts below attributes, which Python itself drops, read from the source: for the JSON schemas and docs/api.md."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import ast


class Attribute(msgspec.Struct, frozen=True):
    """As written in the source. `declared` is `name: type = default`."""

    name: str
    declared: str
    doc: str


def attributes_of(cls: type) -> list[Attribute]:
    """Return the public attributes that a class itself declares, in their order."""
    return list(_declared(class_node(cls).body, _source(cls.__module__)))


def constants_of(module: str) -> list[Attribute]:
    """Return what a module declares with a type or in capitals, in its order."""
    return list(_declared(module_node(module).body, _source(module)))


def class_node(cls: type) -> ast.ClassDef:
    import ast

    found = [node for node in module_node(cls.__module__).body if isinstance(node, ast.ClassDef)]
    return next(node for node in found if node.name == cls.__qualname__)


@functools.cache
def module_node(module: str) -> ast.Module:
    import ast

    return ast.parse(_source(module))


@functools.cache
def _source(module: str) -> str:
    import inspect

    return inspect.getsource(sys.modules[module])


def _declared(body: list[ast.stmt], source: str) -> Iterator[Attribute]:
    import ast

    for statement, follower in zip(body, [*body[1:], None], strict=True):
        name = _name(statement)
        if name and not name.startswith("_"):
            yield Attribute(name, ast.get_source_segment(source, statement) or name, _text(follower))


def _name(statement: ast.stmt) -> str:
    """Return the name that is declared: with a type, or in capitals."""
    import ast

    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id if statement.targets[0].id.isupper() else ""
    return ""


def _text(statement: ast.stmt | None) -> str:
    import ast
    import inspect

    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return inspect.cleandoc(str(statement.value.value))
    return ""

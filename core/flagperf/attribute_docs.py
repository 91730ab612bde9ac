"""Docs of attributes where help() shows them.

A text below an attribute is written for whoever reads the source; Python itself drops it. Here the class's docstring
ends with its attributes, and docs/api.md is made from the same. The source is read when somebody looks, and not before:
every command imports the contract.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex

import msgspec

if TYPE_CHECKING:
    import ast


class Attribute(msgspec.Struct, frozen=True):
    """As written in the source. `declared` is `name: type = default`."""

    name: str
    declared: str
    doc: str


def show_attributes(things: Iterable[Any]) -> None:
    """From now on the docstrings of the classes among these have their attributes."""
    for thing in things:
        if isinstance(thing, type) and not isinstance(vars(thing).get("__doc__"), _Docstring):
            thing.__doc__ = _Docstring(thing)


def attributes_of(cls: type) -> list[Attribute]:
    """The public attributes that a class itself declares, in their order."""
    return list(_declared(class_node(cls).body, _source(cls.__module__)))


def constants_of(module: str) -> list[Attribute]:
    return list(_declared(module_node(module).body, _source(module)))


class _Docstring(str):
    """A class's docstring that reads the source when it is used. `cls.__doc__` goes through `__get__`; help() takes
    this object itself and has inspect.cleandoc expand its tabs first."""

    __slots__ = ("_cls",)
    _cls: type

    def __new__(cls, documented: type) -> _Docstring:
        self = super().__new__(cls, documented.__doc__ or "")
        self._cls = documented
        return self

    def __get__(self, instance: object, owner: type | None = None) -> str | None:
        return _with_attributes(self._cls, str(self)) or None

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return _with_attributes(self._cls, str(self)).expandtabs(tabsize)


@functools.cache
def _with_attributes(cls: type, own: str) -> str:
    import inspect

    try:
        found = attributes_of(cls)
    except OSError:  # an installation without its source
        return own
    if not found:
        return own
    lines = ["Attributes:"]
    for each in found:
        lines.append(f"    {each.declared}")
        lines += [f"        {line}" for line in each.doc.splitlines()]
    return "\n".join([*([inspect.cleandoc(own), ""] if own else []), *lines])


# --- the source -------------------------------------------------------------------------------------------------------


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
    """Of what is declared: with a type, or in capitals."""
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

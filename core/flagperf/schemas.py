"""JSON schemas of the files that people write and of those that a run leaves, made from the structs that read them.

They are made when somebody asks, so that they cannot differ from what is read, and know the cases and clusters that are
installed here. A schema says what a file may contain; what fits together only in one file (a limit of a value, a metric
that a page lists) is checked when it is read.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from flagperf.api import PRECISIONS
from flagperf.api.models import ModelsFile
from flagperf.bundle.run_record import STORE_SCHEMA, Run
from flagperf.errors import BadInput, unknown_name
from flagperf.events import EVENT_SCHEMA, AnyEvent
from flagperf.fleet.containers import Container
from flagperf.messages import LANGUAGES
from flagperf.metrics.registry import vocabulary
from flagperf.plan.settings import TuningFile
from flagperf.plugins.installed import Plugins
from flagperf.spec.manifest import PAGE_PARTS, Manifest
from flagperf.spec.node_facts import ENVIRONMENT_FACTS, NodeFacts
from flagperf.spec.published import References
from flagperf.spec.user_file import UserTables
from flagperf.spec.values import SHARED_LIMITS

if TYPE_CHECKING:
    import ast


# Texts below attributes, which Python itself drops, read from the source: for the JSON schemas and docs/api.md.


class Attribute(msgspec.Struct, frozen=True):
    """An attribute as written in the source. `declared` is `name: type = default`."""

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
    import inspect

    for statement, follower in zip(body, [*body[1:], None], strict=True):
        name = text = ""
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id if statement.targets[0].id.isupper() else ""
        if isinstance(follower, ast.Expr) and isinstance(follower.value, ast.Constant):
            text = inspect.cleandoc(str(follower.value.value))
        if name and not name.startswith("_"):
            yield Attribute(name, ast.get_source_segment(source, statement) or name, text)


# The JSON schema of a struct, with what its source says about each attribute.


Schema = dict[str, Any]


def schema_of(kind: Any) -> Schema:
    """Return the schema of a struct, or of anything that is made of structs. `$defs` has those by their names."""
    (root,), found = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    definitions = {name: dict(schema) for name, schema in found.items()}
    for struct in set(_structs(kind, set())):
        with contextlib.suppress(OSError):  # an installation without its source
            _describe(definitions[struct.__name__], struct)
    if set(root) == {"$ref"}:
        root = definitions.pop(root["$ref"].rpartition("/")[2])
    return {**root, **({"$defs": definitions} if definitions else {})}


def _structs(hint: Any, seen: set[type]) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in seen:
        seen.add(hint)
        yield hint
        for field in typing.get_type_hints(hint).values():
            yield from _structs(field, seen)
    for part in typing.get_args(hint):
        yield from _structs(part, seen)


def _describe(schema: Schema, struct: type[msgspec.Struct]) -> None:
    """Add what the source says about a struct and its attributes, with those that it inherits."""
    import ast

    schema.pop("description", None)
    text = ast.get_docstring(class_node(struct))
    if text:
        schema["description"] = " ".join(text.split())
    properties = schema.get("properties", {})
    for declaring in reversed(struct.__mro__[: struct.__mro__.index(msgspec.Struct)]):
        for attribute in attributes_of(declaring):
            if attribute.doc and attribute.name in properties:
                described = {"description": " ".join(attribute.doc.split())}
                properties[attribute.name] = {**properties[attribute.name], **described}


# Schemas of the files that a run leaves.


def run_schema() -> Schema:
    schema = schema_of(Run)
    schema["properties"]["schema"] = {**schema["properties"]["schema"], "const": STORE_SCHEMA}
    return schema


def environment_schema() -> Schema:
    """Return the schema of environment.json: what a node has in common with an earlier one is the index of that one."""
    schema = schema_of(tuple[NodeFacts, ...])
    node = schema["$defs"]["NodeFacts"]["properties"]
    node["environment"] = _or_index(node["environment"])
    node["vendors"] = {**node["vendors"], "items": _or_index(node["vendors"]["items"])}
    return schema


def _or_index(whole: Schema) -> Schema:
    return {"anyOf": [whole, {"type": "integer", "minimum": 0}]}


def events_schema() -> Schema:
    schema = schema_of(AnyEvent)
    for event in schema["$defs"].values():
        if "schema" in event.get("properties", {}):  # the first line of a file
            event["properties"]["schema"] = {"type": "integer", "const": EVENT_SCHEMA}
    return schema


# The values of a case: the type of each is that of the case's default, its limits are in case.toml.


TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


def values_schema(case: Manifest) -> Schema:
    return _values_table(case, case.values, "")


def _values_table(case: Manifest, values: dict[str, Any], prefix: str) -> Schema:
    properties = {
        name: _values_table(case, value, f"{prefix}{name}.")
        if isinstance(value, dict)
        else _value(case, prefix + name, value)
        for name, value in values.items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value(case: Manifest, key: str, default: Any) -> Schema:
    schema = {"type": TYPES[type(default)], "default": default}
    if isinstance(default, list) and default:
        schema["items"] = {"type": TYPES[type(default[0])]}
    if key == "precision":
        schema["enum"] = list(case.precisions)
    limit = case.limits.get(key) or SHARED_LIMITS.get(key)
    if limit is not None:
        bounds = {"minimum": limit.min, "exclusiveMinimum": limit.above, "maximum": limit.max}
        schema |= {name: value for name, value in bounds.items() if value is not None}
        schema |= {"enum": list(limit.choices)} if limit.choices else {}
    return schema


# The files that people write: case.toml, references.toml, models.toml, tuning, flagperf.toml.


def case_schema() -> Schema:
    """Return the schema of case.toml: types of the structs, and names that the check of a case.toml knows."""
    schema = schema_of(Manifest)
    known = vocabulary()
    texts = {"propertyNames": {"enum": list(LANGUAGES)}, "required": ["en"]}
    _refine(schema, name={"pattern": "^[a-z0-9_]+$"}, version={"minimum": 1}, min_devices={"minimum": 1})
    _refine(schema, title=texts, task=texts, kind={"enum": list(known.kinds)})
    _refine(schema, precisions={"items": {"enum": list(PRECISIONS)}, "minItems": 1, "uniqueItems": True})
    _refine(schema, mfu_formula={"enum": [*known.formulas, None]})
    definitions = schema["$defs"]
    _refine(definitions["Profile"], about=texts)
    _refine(definitions["RowFigure"], title=texts)
    _refine_published(schema)
    _refine(definitions["Page"], columns=_names(known.columns), rows=_names(known.rows))
    _refine(definitions["Page"], parts={"items": {"enum": list(PAGE_PARTS)}})
    return schema


def references_schema() -> Schema:
    schema = schema_of(References)
    _refine_published(schema)
    return schema


def _refine_published(schema: Schema) -> None:
    result = schema["$defs"]["PublishedResult"]
    _refine(result, precision={"enum": list(PRECISIONS)}, nodes={"minimum": 1}, devices_per_node={"minimum": 1})


def _names(known: tuple[str, ...]) -> Schema:
    """Return a schema of these names, which an editor can offer, and those of the case's own metrics."""
    return {"items": {"anyOf": [{"enum": list(known)}, {"type": "string"}]}, "minItems": 1, "uniqueItems": True}


def models_schema() -> Schema:
    return schema_of(ModelsFile)


def tuning_schema(case: Manifest | None) -> Schema:
    schema = schema_of(TuningFile)
    if case is not None:
        tuning = schema["$defs"]["Tuning"]
        _refine(tuning, values=values_schema(case), profile={"enum": list(case.profiles)})
    return schema


def user_file_schema(plugins: Plugins) -> Schema:
    schema = schema_of(UserTables)
    options = {name: schema_of(plugins.cluster(name).options) for name in plugins.cluster_names()}
    inner = {name: each for option in options.values() for name, each in option.pop("$defs", {}).items()}
    fact = {"type": "string", "minLength": 1}
    container = schema_of(Container)
    without_image = {name: value for name, value in container["properties"].items() if name != "image"}
    _refine(
        schema,
        environment=_table(dict.fromkeys(ENVIRONMENT_FACTS, fact)),
        cases=_table({name: values_schema(case.manifest) for name, case in plugins.cases().items()}),
        clusters=_table(options),
        container=_table(without_image),
    )
    return {**schema, **({"$defs": inner} if inner else {})}


def _table(properties: dict[str, Any]) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _refine(schema: Schema, **more: Schema) -> None:
    """Say more about these properties than their types do."""
    for name, said in more.items():
        schema["properties"][name] = {**schema["properties"][name], **said}


DIALECT = "https://json-schema.org/draft/2020-12/schema"


class SchemaEntry(msgspec.Struct, frozen=True):
    file: str
    """The file that the schema is of."""
    about: str
    make: Callable[[Plugins, Manifest | None], Schema]
    takes_case: bool = False


SCHEMAS = {
    "case": SchemaEntry("case.toml", "a benchmark case", lambda _plugins, _case: case_schema()),
    "references": SchemaEntry(
        "references.toml", "published results of a case", lambda _plugins, _case: references_schema()
    ),
    "models": SchemaEntry("models.toml", "the card models of an adapter", lambda _plugins, _case: models_schema()),
    "tuning": SchemaEntry(
        "tuning/CASE.toml",
        "an adapter's values for a case; with --case, the keys of that case",
        lambda _plugins, case: tuning_schema(case),
        takes_case=True,
    ),
    "flagperf": SchemaEntry(
        "flagperf.toml",
        "your values for the cases and clusters that are installed here",
        lambda plugins, _case: user_file_schema(plugins),
    ),
    "run": SchemaEntry("run.json", "the record of a run", lambda _plugins, _case: run_schema()),
    "environment": SchemaEntry("environment.json", "the nodes of a run", lambda _plugins, _case: environment_schema()),
    "events": SchemaEntry(
        "events/*.jsonl, samples/*.jsonl", "one line of an event file", lambda _plugins, _case: events_schema()
    ),
}


def make_schema(name: str, plugins: Plugins, case: str | None = None) -> Schema:
    """Return the schema that has this name, or is of a file with this name."""
    named = next((known for known, entry in SCHEMAS.items() if name in (known, entry.file)), None)
    if named is None:
        raise unknown_name("schema", name, SCHEMAS)
    entry = SCHEMAS[named]
    if case is not None and not entry.takes_case:
        raise BadInput(f"--case is for the schema of a tuning file; {entry.file} has no case")
    manifest = plugins.case(case).manifest if case is not None else None
    place = f"urn:flagperf:schema:{named}" + (f":{case}" if case else "")
    title = entry.file.replace("CASE", case) if case else entry.file
    made = entry.make(plugins, manifest)
    made.pop("title", None)
    return {"$schema": DIALECT, "$id": place, "title": title, **made}

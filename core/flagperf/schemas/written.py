"""The files that people write: case.toml, references.toml, models.toml, tuning, flagperf.toml."""

from __future__ import annotations

from typing import Any

from flagperf.api import PRECISIONS
from flagperf.fleet.containers import Container
from flagperf.kit.models_toml import ModelsFile
from flagperf.messages import LANGUAGES
from flagperf.metrics.registry import vocabulary
from flagperf.plan.tuning import TuningFile
from flagperf.plan.userfile import UserTables
from flagperf.plugins.installed import Plugins
from flagperf.schemas.structs import Schema, schema_of
from flagperf.schemas.values import values_schema
from flagperf.spec import ENVIRONMENT_FACTS, Manifest
from flagperf.spec.published import References
from flagperf.spec.vocabulary import PAGE_PARTS


def case_schema() -> Schema:
    """Types are those of the structs; names are those that the check of a case.toml knows."""
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
    """These, which an editor can offer, and the names of the case's own metrics."""
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

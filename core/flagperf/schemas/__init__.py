"""JSON schemas of the files that people write and of those that a run leaves, made from the structs that read them.

They are made when somebody asks, so that they cannot differ from what is read, and know the cases and clusters that are
installed here. A schema says what a file may contain; what fits together only in one file (a limit of a value, a metric
that a page lists) is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from flagperf.errors import BadInput, unknown_name
from flagperf.plugins.installed import Plugins
from flagperf.schemas.recorded import environment_schema, events_schema, run_schema
from flagperf.schemas.written import case_schema, models_schema, references_schema, tuning_schema, user_file_schema
from flagperf.spec import Manifest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


class SchemaEntry(msgspec.Struct, frozen=True):
    file: str
    """Whose schema it is."""
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
    """By its name, or by the name of the file."""
    named = next((known for known, entry in SCHEMAS.items() if name in (known, entry.file)), None)
    if named is None:
        raise unknown_name("schema", name, SCHEMAS)
    entry = SCHEMAS[named]
    if case is not None and not entry.takes_case:
        raise BadInput(f"--case is for the schema of a tuning file; {entry.file} has no case")
    manifest = plugins.case(case).manifest if case is not None else None
    place = f"urn:flagperf:schema:{named}" + (f":{case}" if case else "")
    title = entry.file.replace("CASE", case) if case else entry.file
    return {"$schema": DIALECT, "$id": place, "title": title, **_without_title(entry.make(plugins, manifest))}


def _without_title(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "title"}

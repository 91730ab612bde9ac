"""The schemas say what is read: real files are valid, and files that are refused are not."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from recorded_bundles import FOLDER

from flagperf.bundle.bundle import read_bundle
from flagperf.bundle.run_record import with_references
from flagperf.cli.vendors import write_adapter
from flagperf.errors import BadInput
from flagperf.event_files import read_events
from flagperf.plugins.installed import load_plugins
from flagperf.schemas import SCHEMAS, make_schema
from flagperf.spec.toml_files import read_toml

ROOT = Path(__file__).parents[2]
CASES = sorted(ROOT.glob("cases/flagperf_cases/*/case.toml"))
MODELS = sorted(ROOT.glob("plugins/*/src/*/models.toml"))
SHIPPED = [
    *(("case", path) for path in CASES),
    *(("references", path) for path in sorted(ROOT.glob("cases/flagperf_cases/*/references.toml"))),
    *(("models", path) for path in MODELS),
    *(("tuning", path) for path in sorted(ROOT.glob("plugins/*/src/*/tuning/*.toml"))),
]
BUNDLES = sorted(FOLDER.iterdir())


@functools.cache
def schema_named(name: str, case: str | None = None) -> dict[str, Any]:
    return as_json(make_schema(name, load_plugins(), case))


def as_json(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def flagperf(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "flagperf", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, **options)


def complaints(schema: dict[str, Any], content: Any) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(content)
    return [f"{error.json_path}: {error.message}" for error in found]


def test_every_schema_is_one_of_draft_2020_12_and_says_whose_it_is() -> None:
    for name, entry in SCHEMAS.items():
        schema = schema_named(name)
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$schema"].endswith("/draft/2020-12/schema")
        assert (schema["$id"], schema["title"]) == (f"urn:flagperf:schema:{name}", entry.file)


@pytest.mark.parametrize(("name", "path"), SHIPPED, ids=lambda each: getattr(each, "parent", each))
def test_every_shipped_file_is_valid(name: str, path: Path) -> None:
    assert complaints(schema_named(name), read_toml(path)) == []
    if name == "tuning":
        assert complaints(schema_named("tuning", path.stem), read_toml(path)) == []


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_recorded_runs_are_valid_as_today_reads_them(path: Path) -> None:
    for name, content in record(path).items():
        assert complaints(schema_named(name), content) == []


def record(path: Path) -> dict[str, Any]:
    found = read_bundle(path)
    return {"run": as_json(found.run), "environment": as_json(with_references(found.nodes))}


@pytest.mark.parametrize("path", BUNDLES[::4], ids=lambda path: path.name)
def test_recorded_events_are_valid_as_today_reads_them(path: Path) -> None:
    schema = jsonschema.Draft202012Validator(schema_named("events"))
    for file in [*path.glob("events/*.jsonl"), *path.glob("samples/*.jsonl")]:
        for event in read_events(file).events[:40]:
            assert list(schema.iter_errors(as_json(event))) == []


@pytest.mark.run
def test_every_line_that_a_run_of_today_writes_is_valid(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environ = {**os.environ, "FLAGPERF_RUNS_DIR": str(tmp_path)}
    flagperf("run", "distilbert", "--vendor", "cpu", "--set", "training.max_steps=3", "--quiet", env=environ)
    (bundle,) = tmp_path.iterdir()
    for name in ("run", "environment"):
        assert complaints(schema_named(name), json.loads((bundle / f"{name}.json").read_text())) == []
    lines = [line for path in bundle.glob("*/*.jsonl") for line in path.read_text().splitlines()]
    schema = jsonschema.Draft202012Validator(schema_named("events"))
    assert len(lines) > 10
    for line in lines:
        schema.validate(json.loads(line))


def test_a_users_file_may_have_what_is_installed_here() -> None:
    schema = schema_named("flagperf")
    assert complaints(schema, {}) == []
    content = {
        "environment": {"network": "InfiniBand, 200 Gb/s"},
        "cases": {"distilbert": {"training": {"batch_size": 96, "learning_rate": 1}}, "gemm": {}},
        "clusters": {"ssh": {"hosts": "node[01-16]"}, "slurm": {"time": 30, "arguments": ["--qos=high"]}},
        "container": {"engine": "docker", "mounts": ["/data"]},
    }
    assert complaints(schema, content) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"path": "x"}, "'path' was unexpected"),
        ({"environment": {"netwrk": "x"}}, "'netwrk' was unexpected"),
        ({"environment": {"network": ""}}, "$.environment.network"),
        ({"cases": {"distilbart": {}}}, "'distilbart' was unexpected"),
        ({"cases": {"distilbert": {"training": {"batch_size": "96"}}}}, "'96' is not of type 'integer'"),
        ({"cases": {"distilbert": {"training": {"batch_size": 0}}}}, "less than the minimum"),
        ({"cases": {"distilbert": {"training": {"learning_rate": 0}}}}, "less than or equal to the minimum"),
        ({"cases": {"distilbert": {"precision": "fp64"}}}, "'fp64' is not one of"),
        ({"clusters": {"ssh": {"host": "a"}}}, "'host' was unexpected"),
        ({"container": {"image": "x"}}, "'image' was unexpected"),
        ({"container": {"engine": "lxc"}}, "'lxc' is not one of"),
    ],
)
def test_a_users_file_that_is_refused_is_not_valid(content: dict[str, Any], said: str) -> None:
    found = complaints(schema_named("flagperf"), content)
    assert len(found) == 1 and said in found[0]


def changed(content: Any, place: str, value: Any) -> Any:
    """A copy with another value in this place; None removes it."""
    copy = json.loads(json.dumps(content))
    *outer, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    inner = copy
    for part in outer:
        inner = inner[part]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return copy


WRONG_CASES = {
    "name": ["Distil Bert", None],
    "version": [0, "1"],
    "kind": ["trainig"],
    "precisions": [[], ["fp32", "fp32"], ["fp64"]],
    "title": [{"zh": "x"}],
    "title.fr": ["x"],
    "taks": [{"en": "x"}],
    "page.columns": [[]],
    "page.parts": [["parallel"]],
    "page.colums": [["mem"]],
    "profiles.tiny.about": ["text"],
    "references.0.nodes": [0],
    "references.0.precision": ["fp64"],
    "mfu_formula": ["palmm"],
    "counts": ["steps"],
}


@pytest.mark.parametrize(("place", "value"), [(place, value) for place, all in WRONG_CASES.items() for value in all])
def test_a_case_that_is_refused_is_not_valid(place: str, value: Any) -> None:
    (path,) = [path for path in CASES if path.parent.name == "distilbert"]
    content = {**read_toml(path), **read_toml(path.with_name("references.toml"))}
    assert not complaints(schema_named("case"), content)
    assert complaints(schema_named("case"), changed(content, place, value))


WRONG_FILES: dict[str, tuple[Any, dict[str, Any]]] = {
    "models": (
        lambda: read_toml(MODELS[0]),
        {"model.0.name": None, "model.0.nmae": "x", "model.0.peak": {}, "model.0.pci_ids": "0a01", "models": []},
    ),
    "run": (
        lambda: record(BUNDLES[0])["run"],
        {"schema": 2, "job.nodes": None, "ending.status": "fine", "spec.devices": "1"},
    ),
    "environment": (lambda: record(BUNDLES[0])["environment"], {"0.host": None, "0.environment": -1}),
    "events": (
        lambda: {"type": "sampled", "t_ns": 1, "readings": []},
        {"type": "sampld", "t_ns": None, "readings": {}, "baseline": 1},
    ),
}


@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, (_, wrong) in WRONG_FILES.items() for place in wrong]
)
def test_a_file_that_cannot_be_read_is_not_valid(name: str, place: str) -> None:
    read, wrong = WRONG_FILES[name]
    assert complaints(schema_named(name), read()) == []
    assert complaints(schema_named(name), changed(read(), place, wrong[place]))


def test_what_the_source_says_is_in_the_schema() -> None:
    case = schema_named("case")
    assert case["properties"]["kind"]["description"].startswith("How it is measured")
    assert case["$defs"]["Target"]["description"].startswith("The metric that has to reach")
    events = schema_named("events")["$defs"]
    assert events["StepFinished"]["properties"]["t_ns"]["description"].startswith("When the event was recorded")


def test_a_new_adapter_has_the_schemas_that_its_files_name(tmp_path: Path) -> None:
    write_adapter("acme", tmp_path / "flagperf-acme")
    heads = {path: path.read_text().splitlines()[0] for path in tmp_path.rglob("*.toml")}
    named = {path: path.parent / head.removeprefix("#:schema ") for path, head in heads.items() if "#:schema " in head}
    assert {path.name for path in named} == {"models.toml", "distilbert.toml"}
    for path, schema in named.items():
        assert complaints(json.loads(schema.read_text()), read_toml(path)) == []
        assert complaints(json.loads(schema.read_text()), {**read_toml(path), "unknown": 1})


def test_the_command_prints_one_by_its_name_or_by_that_of_the_file_and_lists_them_all() -> None:
    assert json.loads(flagperf("schema", "models.toml").stdout) == schema_named("models")
    tuning = json.loads(flagperf("schema", "tuning", "--case", "glm").stdout)
    assert tuning["title"] == "tuning/glm.toml"
    assert [each["name"] for each in json.loads(flagperf("schema", "--list", "--json").stdout)] == list(SCHEMAS)
    assert "events/*.jsonl" in flagperf("schema", "--list").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give the name of one schema, or --list; known: case, references"),
        (["case", "--list"], "give the name of one schema, or --list"),
        (["casse"], "unknown schema 'casse'; did you mean case?"),
        (["run", "--case", "glm"], "--case is for the schema of a tuning file"),
        (["tuning", "--case", "gml"], "unknown case 'gml'; did you mean glm"),
    ],
)
def test_a_wrong_request_says_what_to_do(arguments: list[str], said: str) -> None:
    done = flagperf("schema", *arguments)
    assert done.returncode == BadInput.exit_code
    assert said in done.stderr and done.stdout == ""

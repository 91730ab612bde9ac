"""case.toml files, good and bad. A bad one is named with the field that is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from flagperf.errors import BadInput
from flagperf.metrics.alignment import LOSS_ALIGNED
from flagperf.metrics.registry import vocabulary
from flagperf.report.sections.result_tables import COLUMNS, ROWS
from flagperf.spec.manifest import PAGE_COLUMNS, PAGE_PARTS, PAGE_ROWS, REPORT_METRICS, Manifest
from flagperf.spec.manifest_reading import read_manifest, with_references
from flagperf_publish.pages.setup import STRATEGIES

GOOD = """
name = "toy"
version = 1
kind = "training"
title = { en = "Toy" }
task = { en = "Play" }
model = "none"
dataset = "none"
precisions = ["fp32"]
default_profile = "tiny"

[page]
columns = ["precision"]
rows = ["precision"]

[values]
precision = "fp32"
training.batch_size = 8

[profiles.tiny]
about = { en = "Small" }

[[qualities]]
name = "acc"
unit = "fraction"
definition = "right ones over all"

[target]
metric = "acc"
key = "training.batch_size"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "case.toml"


def read(path: Path, text: str) -> Manifest:
    path.write_text(text)
    return read_manifest(path, vocabulary())


def refusal(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        read_manifest(path, vocabulary())
    message = str(caught.value)
    assert message.startswith(str(path))
    return message


def test_a_good_file_is_read_with_its_defaults(path: Path) -> None:
    manifest = read(path, GOOD)
    assert (manifest.name, manifest.version, manifest.requires, manifest.sample_unit) == ("toy", 1, (), "samples/s")
    assert manifest.values == {"precision": "fp32", "training": {"batch_size": 8}}
    assert not manifest.profiles["tiny"].published and not manifest.profiles["tiny"].needs_data_dir
    assert manifest.target is not None and not manifest.target.gates


FIELDS = ("name", "version", "kind", "title", "task", "model", "dataset", "precisions", "default_profile")
MISSING = {
    **{field: re.search(rf"^{field} = .*\n", GOOD, re.MULTILINE)[0] for field in FIELDS},
    "page": '[page]\ncolumns = ["precision"]\nrows = ["precision"]\n',
    "values": '[values]\nprecision = "fp32"\ntraining.batch_size = 8\n',
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_key_or_table_is_named(path: Path, name: str) -> None:
    assert refusal(path, GOOD.replace(MISSING[name], "", 1)) == f"{path}: {name}: it is missing"


@pytest.mark.parametrize("content", [b"name = ", b"[page\n", b"a = 1\na = 2\n", b"\xff\xfename"])
def test_a_file_that_is_no_toml_is_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"case\.toml is not valid TOML"):
        read_manifest(path, vocabulary())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.toml: No such file or directory"):
        read_manifest(tmp_path / "none.toml", vocabulary())


REFERENCE = """
[[references]]
vendor = "acme"
device = "A1"
nodes = 1
devices_per_node = 8
precision = "fp32"
overrides = "none"
source = "a page"
values = { p_core = 1.5, acc = 0.5 }
"""


def complete(path: Path) -> Manifest:
    return with_references(read_manifest(path, vocabulary()), path, vocabulary())


def test_published_results_may_be_in_a_file_of_their_own_or_in_both(path: Path) -> None:
    path.write_text(GOOD)
    assert complete(path).references == ()
    path.with_name("references.toml").write_text(REFERENCE)
    assert [each.device for each in complete(path).references] == ["A1"]
    assert read_manifest(path, vocabulary()).references == ()
    path.write_text(GOOD + REFERENCE.replace("A1", "A2"))
    assert [each.device for each in complete(path).references] == ["A2", "A1"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("references = 3", "references.toml: [references] Expected a table"),
        ("[[result]]", "references.toml: unknown key 'result'"),
        ("[[references", "references.toml is not valid TOML"),
        (REFERENCE.replace("acc = 0.5", "ac = 0.5"), "references.toml: [[references]] 1 values: unknown metric 'ac'"),
        (REFERENCE.replace("nodes = 1", "nodes = 0"), "references.toml: [[references]] 1 nodes: must be at least 1"),
    ],
)
def test_a_bad_file_of_published_results_is_named(path: Path, content: str, problem: str) -> None:
    path.write_text(GOOD)
    path.with_name("references.toml").write_text(content)
    with pytest.raises(BadInput) as caught:
        complete(path)
    assert problem in str(caught.value)


REPLACED = {
    'name = "toy"': [
        ("name = 7", "name: expected a string, got a whole number"),
        ('name = "to/y"', "name: use lower-case letters"),
    ],
    "version = 1": [
        ('version = "1"', "version: expected a whole number, got a string"),
        ("version = 0", "version: must be at least 1; got 0"),
    ],
    '"training"': [('"traning"', "kind: unknown kind 'traning'; did you mean training?")],
    'precisions = ["fp32"]': [('precisions = "fp32"', "precisions: expected a list, got a string")],
    'title = { en = "Toy" }': [
        ('title = "Toy"', "title: expected a table, got a string"),
        ('title = { zh = "玩具" }', "[title]: the English text is missing"),
    ],
    'about = { en = "Small" }': [
        ("", "[profiles.tiny] about: it is missing"),
        ('about.en = "S"\nvalue = {}', "[profiles.tiny] unknown key 'value'; did you mean values"),
        ('about = { zh = "小" }', "[profiles.tiny] about: the English text is missing"),
    ],
    '[profiles.tiny]\nabout = { en = "Small" }': [
        ("[profiles]\ntiny = 7", "[profiles.tiny] Expected a table, got a whole number")
    ],
    'unit = "fraction"': [
        ("", "[[qualities]] 1 unit: it is missing"),
        ('unit = "x"\nformat = "losss"', "[[qualities]] 1 format: unknown value 'losss'; did you mean loss?"),
    ],
    'metric = "acc"': [
        ('metric = "acc"\ngate = true', "[target] unknown key 'gate'; did you mean gates"),
        ('metric = "accu"', "[target] metric: unknown metric 'accu'; did you mean acc"),
    ],
    "rows = ": [("collumns = []\nrows = ", "[page] unknown key 'collumns'; did you mean columns?")],
    'dataset = "none"': [('dataset = " "', "dataset: must not be empty")],
    'task = { en = "Play" }': [
        ('task = { en = "" }', "[task]: the English text is missing"),
        ('task = { en = "Play", zn = "玩" }', "[task]: unknown language 'zn'; did you mean zh"),
    ],
    '["fp32"]': [
        ("[]", "precisions: name at least one of fp32, tf32"),
        ('["fp32", "bf61"]', "precisions: unknown precision 'bf61'; did you mean bf16"),
        ('["fp32", "fp32"]', "precisions: 'fp32' is listed twice"),
    ],
    'precision = "fp32"\n': [
        ("", "[values] precision: must be one of the case's precisions: fp32"),
    ],
    "batch_size = 8": [
        ("batch_size = 0", "[values]: training.batch_size must be at least 1; got 0"),
        ("batch_size = nan", "[values] training.batch_size: must be a string"),
        ('batch_size = 8\nsizes = [1, "a"]', "[values] sizes: must be a string"),
        ('batch_size = 8\n"a b" = 1', "[values] 'a b': keys may have letters"),
    ],
    'default_profile = "tiny"': [
        ('default_profile = "tinny"', "default_profile: unknown profile 'tinny'; did you mean tiny")
    ],
    "[profiles.tiny]": [('[profiles."a b"]\nabout.en = "S"\n[profiles.tiny]', '[profiles."a b"]: names have letters')],
    'name = "acc"': [('name = "p_core"', "[[qualities]] 1 name: 'p_core' is a metric of every run")],
    'definition = "right ones over all"': [
        ('definition = ""', "[[qualities]] 1 definition: must not be empty"),
        ('definition = "d"\nminimum = 1\nmaximum = 0', "[[qualities]] 1: the range is empty: from 1 to 0"),
    ],
    "[target]": [
        (
            '[[qualities]]\nname = "acc"\nunit = ""\ndefinition = "d"\n[target]',
            "[[qualities]] name: 'acc' is listed twice",
        ),
    ],
    'key = "training.batch_size"': [
        ('key = "evaluation.target"', "[target] key: unknown key of [values] 'evaluation.target'"),
        ('key = "precision"', "[target] key: the value of precision must be a number"),
    ],
    'columns = ["precision"]': [
        ("columns = []", "[page] columns: must not be empty"),
        ('columns = ["p_cor"]', "[page] columns: unknown column 'p_cor'; did you mean p_core"),
        ('columns = ["acc", "acc"]', "[page] columns: 'acc' is listed twice"),
    ],
    'rows = ["precision"]': [
        ('rows = ["precison"]', "[page] rows: unknown row 'precison'; did you mean precision"),
        ('rows = ["precision"]\nremarks.mem.en = "x"', "[page.remarks]: unknown row of this page 'mem'"),
    ],
    'source = "a page"': [('source = ""', "[[references]] 1 source: must not be empty")],
    "nodes = 1": [("nodes = 0", "[[references]] 1 nodes: must be at least 1; got 0")],
    'precision = "fp32"\noverrides': [
        (
            'precision = "f32"\noverrides',
            "[[references]] 1 precision: unknown precision 'f32'; did you mean tf32 or fp32",
        ),
    ],
    "p_core = 1.5": [
        ("p_cor = 1.5", "[[references]] 1 values: unknown metric 'p_cor'; did you mean p_core"),
        ("p_core = inf", "[[references]] 1 values: p_core is inf; omit values that were not published"),
        ('p_core = "fast"', "[[references]] 1 values[...]: expected a number, got a string"),
    ],
}
"""Text of a good file -> what is wrong in its place, and what is said of it."""

ADDED = [
    ('modle = "x"', "unknown key 'modle'; did you mean model?"),
    ('requires = ["torch>=>2"]', "requires: 'torch>=>2' is not a requirement"),
    ('check_files = "data.py"', "check_files: must be module:function"),
    ('mfu_formula = "exakt"', "mfu_formula: unknown formula 'exakt'; did you mean exact"),
    ('sequence_key = "model.length"', "sequence_key: unknown key of [values] 'model.length'"),
    ('sequence_key = "precision"', "sequence_key: the value of precision must be a number"),
    ('page_names = { lr = "x" }', "[page_names]: unknown key of [values] 'lr'"),
    ('data = [{ name = "d", files = ["../x"] }]', "[[data]] d, files: '../x' is not a path inside --data-dir"),
    ('data = [{ name = "d", files = ["/x"] }]', "[[data]] d, files: '/x' is not a path inside --data-dir"),
    (
        'data = [{ name = "d", files = ["x"], url = "ask me" }]',
        "[[data]] d, url: must begin with https://; got 'ask me'",
    ),
    ('data = [{ name = "d", files = ["x"], rows = { y = 1 } }]', "[[data]] d, rows: unknown file 'y'"),
    (
        'data = [{ name = "d", files = ["{training.batchsize}"] }]',
        "[[data]] d: unknown key of [values] 'training.batchsize'",
    ),
    (
        'data = [{ name = "d", files = ["x"], when = { precison = "fp32" } }]',
        "[[data]] d: unknown key of [values] 'precison'",
    ),
]
"""Keys of the file."""

LIMITS = [
    ("'a.b' = { minn = 1 }", "[limits.\"a.b\"] unknown key 'minn'; did you mean min"),
    (
        "'training.batchsize' = { min = 1 }",
        "[limits]: unknown key of [values] 'training.batchsize'; did you mean training.batch_size",
    ),
    ("'training.batch_size' = {}", '[limits."training.batch_size"]: the limit is empty'),
    ("'training.batch_size' = { min = 2, max = 1 }", '[limits."training.batch_size"]: the range is empty: from 2 to 1'),
    ("'training.batch_size' = { max = 4 }", "[values]: training.batch_size must be at most 4; got 8"),
    ("'training.batch_size' = { choices = ['8'] }", '[limits."training.batch_size"]: choices are for strings'),
    ("precision = { max = 4 }", '[limits."precision"]: min, above and max are for numbers'),
]
"""Lines of [limits]."""

PROFILE = [
    (
        "values.training.batchsize = 4",
        "[profiles.tiny.values]: unknown key of case toy 'training.batchsize'; did you mean training.batch_size",
    ),
    ("values.training = 4", "[profiles.tiny.values]: 'training' is a group of keys"),
    ('values.precision = "bf16"', "[profiles.tiny.values] precision: must be one of fp32"),
]
"""Lines of [profiles.tiny]."""

WRONG = [
    *((old, new, problem) for old, pairs in REPLACED.items() for new, problem in pairs),
    *(('model = "none"', f'model = "none"\n{new}', problem) for new, problem in ADDED),
    *(("[page]", f"[limits]\n{new}\n[page]", problem) for new, problem in LIMITS),
    *(('{ en = "Small" }', f'{{ en = "S" }}\n{new}', problem) for new, problem in PROFILE),
]


@pytest.mark.parametrize(("old", "new", "problem"), WRONG)
def test_what_is_wrong_is_named_with_its_table_and_key_when_the_file_is_read(
    path: Path, old: str, new: str, problem: str
) -> None:
    text = GOOD + REFERENCE
    assert old in text
    assert refusal(path, text.replace(old, new, 1)).startswith(f"{path}: {problem}")


def test_requirements_of_every_form_are_read(path: Path) -> None:
    forms = ["torch", "torch >= 2, < 3", "flash-attn==2.5.1", "torch[opt]>=2", "a; python_version<'3.11'", "a~=2.1"]
    manifest = read(path, GOOD.replace('model = "none"', f'model = "none"\nrequires = {forms}', 1))
    assert list(manifest.requires) == forms


def test_plain_requirements_are_read_without_an_import_that_costs_time(path: Path) -> None:
    path.write_text(GOOD.replace('model = "none"', 'model = "none"\nrequires = ["torch>=2.0,<3", "peft"]', 1))
    script = (
        "import sys; from pathlib import Path; from flagperf.spec.manifest_reading import read_manifest; "
        "from flagperf.metrics.registry import vocabulary; "
        "read_manifest(Path(sys.argv[1]), vocabulary()); sys.exit('packaging' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("written", "real"),
    [
        (REPORT_METRICS, [LOSS_ALIGNED.name]),
        (PAGE_COLUMNS, COLUMNS),
        (PAGE_ROWS, [*ROWS, "result"]),
        (PAGE_PARTS, [*STRATEGIES, "batch_size"]),
    ],
    ids=["report metrics", "columns", "rows", "parts"],
)
def test_the_vocabulary_is_that_of_the_later_stages(written: Sequence[str], real: Iterable[str]) -> None:
    assert set(written) == set(real), "core/flagperf/spec/manifest.py lists the names that a case.toml may use"

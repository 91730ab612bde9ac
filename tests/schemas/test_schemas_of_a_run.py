"""What a run of today writes, line by line, as it is on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from flagperf.plugins.installed import load_plugins
from flagperf.schemas import make_schema

pytestmark = pytest.mark.run


def test_every_file_of_a_run_is_valid(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    request = ["run", "distilbert", "--vendor", "cpu", "--set", "training.max_steps=3", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "flagperf", *request],
        env={**os.environ, "FLAGPERF_RUNS_DIR": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    (bundle,) = tmp_path.iterdir()
    plugins = load_plugins()
    schemas = {
        name: jsonschema.Draft202012Validator(make_schema(name, plugins)) for name in ("run", "environment", "events")
    }
    for name in ("run", "environment"):
        schemas[name].validate(json.loads((bundle / f"{name}.json").read_text()))
    lines = [line for path in bundle.glob("*/*.jsonl") for line in path.read_text().splitlines()]
    assert len(lines) > 10
    for line in lines:
        schemas["events"].validate(json.loads(line))

"""The parent process is light: no command that plans, lists or reports imports a framework or a vendor's library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from recorded_bundles import FOLDER, IDS

from flagperf import version
from flagperf.bundle.bundle import create_bundle, seal
from flagperf.bundle.run_record import STORE_SCHEMA, Ending, Run
from flagperf.fleet.reach import reach_nodes
from flagperf.plan.plan import make_plan
from flagperf.plugins.installed import load_plugins
from flagperf.spec.job import RunSpec
from flagperf.spec.protocol import CheckRequest
from flagperf.spec.values import Layer, resolve

HEAVY = {"torch", "accelerate", "transformers", "peft", "pynvml", "numpy"}

# Several commands in one fresh Python, with the top-level modules that are loaded after each.
IN_CLI = """
import json, sys
from flagperf.cli import run_cli
answer = []
for command in sys.argv[2:]:
    code = run_cli(command.split())
    answer.append([command, code, sorted({name.partition(".")[0] for name in sys.modules})])
open(sys.argv[1], "w").write(json.dumps(answer))
"""

# Verbs as `agent serve` forks them, one after the other, with what the agent itself has loaded until then.
IN_AGENT = """
import importlib, io, json, sys
from flagperf.agent import __main__, serve
answers = [["serve", 0, sorted(sys.modules)]]
for asked in sys.stdin.read().splitlines():
    verb, _, request = asked.partition(" ")
    module, _, name = serve.VERBS[verb].partition(":")
    code = getattr(importlib.import_module(module), name)(request.encode(), io.BytesIO(), io.BytesIO())
    answers.append([asked, code, sorted({name.partition(".")[0] for name in sys.modules})])
open(sys.argv[1], "w").write(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a run that was planned and never started."""
    directory = tmp_path_factory.mktemp("runs")
    spec, plugins = RunSpec("distilbert", vendor="cpu"), load_plugins()
    with reach_nodes(spec, plugins) as fleet:
        plan = make_plan(spec, plugins, fleet, needs_worker=False)
    run = Run(
        schema=STORE_SCHEMA,
        id=plan.job.run_id,
        created="2026-01-02T03:04:05+00:00",
        flagperf_version=version(),
        spec=plan.spec,
        job=plan.job,
        manifest=plan.manifest,
        ending=Ending("failed", "never started"),
    )
    seal(create_bundle(directory, run, plan.nodes))
    return directory


def loaded_after(tmp_path: Path, code: str, *arguments: str, stdin: str = "") -> dict[str, set[str]]:
    """What each command has loaded besides. The code writes its answer into the file of its first argument."""
    answer = tmp_path / "modules.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FLAGPERF_", "COV"))}
    done = subprocess.run(
        [sys.executable, "-c", code, str(answer), *arguments],
        cwd=tmp_path,
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert answer.exists(), done.stderr
    loaded: dict[str, set[str]] = {}
    for command, returncode, modules in json.loads(answer.read_text()):
        assert returncode == 0, f"{command}: {done.stderr}"
        loaded[command] = set(modules)
    return loaded


def too_heavy(loaded: dict[str, set[str]], heavy: set[str]) -> dict[str, set[str]]:
    return {command: modules & heavy for command, modules in loaded.items() if modules & heavy}


def test_commands_that_list_import_neither_a_framework_nor_rich(tmp_path: Path, runs_dir: Path) -> None:
    commands = [
        "--help",
        "run --help",
        "cases list",
        "cases show distilbert",
        "runs list",
        f"runs list --runs-dir {runs_dir}",
        "vendors list",
        "devices",
        "env",
    ]
    assert too_heavy(loaded_after(tmp_path, IN_CLI, *commands), {*HEAVY, "rich"}) == {}


def test_plans_and_reports_are_made_without_a_framework(tmp_path: Path, runs_dir: Path) -> None:
    reports = ["report latest", "report latest --format md", "report latest --format json", "runs show latest"]
    commands = [
        f"compare {IDS['distilbert']} {IDS['distilbert_1x2']} --runs-dir {FOLDER}",
        "plan distilbert",
        "plan distilbert --json",
        "run distilbert --dry-run",
        *(f"{report} --runs-dir {runs_dir}" for report in reports),
    ]
    assert too_heavy(loaded_after(tmp_path, IN_CLI, *commands), HEAVY) == {}


def test_the_agent_has_only_what_it_needs_and_its_answers_need_no_framework(tmp_path: Path) -> None:
    """It is started on every node, forks without threads of a library, describes the node, and looks at cases' data."""
    checks = []
    for case in load_plugins().cases().values():
        if case.manifest.check_files is not None:
            config = resolve(case.manifest, [Layer("profile tiny", case.manifest.profiles["tiny"].values)])
            checks.append(CheckRequest(case.manifest.check_files, None, config.values))
    assert len(checks) > 4
    lines = ['rendezvous {"address": "127.0.0.1"}', 'describe {"with_memory": true}']
    lines += [f"check {msgspec.json.encode(request).decode()}" for request in checks]
    loaded = loaded_after(tmp_path, IN_AGENT, stdin="\n".join(lines))
    assert too_heavy(loaded, HEAVY) == {} and len(loaded) == 1 + len(lines)
    others = {"plan", "run", "fleet", "report", "worker", "metrics", "cli", "builtin"}
    assert not loaded["serve"] & {*(f"flagperf.{name}" for name in others), *HEAVY, "rich", "click"}

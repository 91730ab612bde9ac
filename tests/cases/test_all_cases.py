"""CaseSuite: what all cases of this repository have in common, with a tiny run of each on one rank and on two.

That bundles of every case verify and have their pages is shown in tests/bundles, where a run of each is recorded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from case_harness import QUICK, CaseHarness, moments, reports, rows, steps
from write_data_docs import readmes, render

from flagperf.api import PRECISIONS
from flagperf.events import DataDescribed, Event, ModelDescribed
from flagperf.kinds import KINDS
from flagperf.report.sections.result_tables import check_layout
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import Layer, resolve
from flagperf_cases import flagperf_cases

FOLDERS = {case.manifest.parent.name: case.manifest.parent for case in flagperf_cases()}
FILES = {"case.toml", "README.md", "__init__.py", "case.py", "data.py"}

DESCRIBED: dict[str, tuple[dict[str, int], tuple[int | bool | None, ...]]] = {
    "aquila_33b": ({"made_up": 8}, (2, 8, 8, 55, True, 2 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 64, None)),
    "distilbert": (
        {"synthetic train": 70, "synthetic eval": 20}, (2, 4, 16, 32, False, 2 * (4 * 64 * 64 + 2 * 64 * 128), None),
    ),
    "glm": (
        {"synthetic train": 40, "synthetic eval": 9}, (1, 4, 16, 36, False, 4 * 64 * 64 + 2 * 64 * 128 + 64 * 64, None),
    ),
    "llama2_70b": ({"made_up": 255}, (2, 4, 16, 32, True, 2 * (3 * 64 * 64 + 3 * 64 * 128) + 64 * 64, None)),
    "llama2_7b_finetune": (
        {"synthetic train": 778, "synthetic val": 5, "synthetic test": 5},
        (2, 4, 16, 48, True, 2 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 72, 2 * 2 * 2 * 8 * 64),
    ),
}  # fmt: skip
"""Rows by name of the data; layers, heads, head size, sequence, causal, parameters of matrix products and of LoRA."""

Runs = Callable[[str, int], list[list[Event]]]


def manifest_of(name: str) -> Manifest:
    return CaseHarness(name).manifest()


def has_steps(name: str) -> bool:
    return KINDS[manifest_of(name).kind].has_steps


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Events by rank of a case's tiny run, which is made when it is first asked for."""
    folder = tmp_path_factory.mktemp("tiny")

    @cache
    def run(name: str, world_size: int) -> list[list[Event]]:
        harness = CaseHarness(name)
        return harness.run_ranks(folder / f"{name} {world_size}", world_size, [harness.quick_changes()])[0]

    return run


class CaseSuite:
    def test_its_files_and_its_manifest_are_complete(self, name: str) -> None:
        manifest = manifest_of(name)
        assert {path.name for path in FOLDERS[name].iterdir()} >= FILES
        assert manifest.name == name
        assert manifest.check_files == f"flagperf_cases.{name}.data:check_files"
        assert set(manifest.precisions) <= set(PRECISIONS)
        check_layout(manifest)

    def test_its_profiles_resolve_and_tiny_is_the_default(self, name: str) -> None:
        manifest = manifest_of(name)
        allowed = {"standard", "tiny"} if has_steps(name) else {"standard", "quick", "sustained", "tiny"}
        assert manifest.default_profile == "tiny"
        assert {"standard", "tiny"} <= set(manifest.profiles) <= allowed
        assert [profile for profile, found in manifest.profiles.items() if found.published] == ["standard"]
        for profile in manifest.profiles.values():
            resolve(manifest, [Layer("profile", profile.values)])

    def test_its_readme_and_page_say_where_the_data_comes_from(self, name: str) -> None:
        manifest, readme = manifest_of(name), FOLDERS[name] / "README.md"
        assert bool(manifest.data) == bool(manifest.links("dataset")) == has_steps(name)
        assert bool(manifest.links("checkpoint")) == (has_steps(name) and name != "llama2_70b")
        for link in (*manifest.links("dataset"), *manifest.links("checkpoint")):
            assert link.rpartition(" ")[2] in readme.read_text()
        for data in manifest.data:
            assert data.take and data.licence and data.when
            assert data.name == "text" or (data.urls and "DIR" in data.command)
        assert readme not in readmes() or readme.read_text() == render(readme), "run `make docs`"

    def test_its_figures_have_two_languages_and_a_headline(self, name: str) -> None:
        manifest = manifest_of(name)
        assert any(figure.headline for figure in manifest.figures) is (manifest.kind == "base")
        assert all(set(figure.title) == {"en", "zh"} for figure in manifest.figures)

    def test_its_published_memory_is_in_bytes(self, name: str) -> None:
        values = [each.values["mem_used"] for each in manifest_of(name).references if "mem_used" in each.values]
        assert all(1 << 30 < used < 1 << 38 for used in values)

    def test_its_checks_before_a_run_import_no_heavy_package(self, name: str) -> None:
        """They run in the agent, which has to stay light."""
        manifest = manifest_of(name)
        modules = [target.partition(":")[0] for target in (manifest.check_files, manifest.estimate) if target]
        script = (
            f"import sys, flagperf_cases, {', '.join(modules)}\n"
            "flagperf_cases.flagperf_cases()\n"
            "heavy = {'torch', 'transformers', 'peft', 'accelerate', 'numpy', 'tokenizers', 'safetensors',\n"
            "         'sentencepiece'} & set(sys.modules)\n"
            "assert not heavy, heavy"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", script], check=True, env=environment)

    @pytest.mark.run
    @pytest.mark.parametrize("world_size", [1, 2])
    def test_its_tiny_run_records_what_its_kind_needs(self, tiny: Runs, name: str, world_size: int) -> None:
        manifest = manifest_of(name)
        if manifest.min_devices <= world_size:
            check = check_steps if has_steps(name) else check_rows
            check(manifest, tiny(name, world_size))


@pytest.mark.parametrize("name", FOLDERS)
class TestCases(CaseSuite):
    """All cases of this repository."""


def check_steps(manifest: Manifest, ranks: list[list[Event]]) -> None:
    """One loop with equally many steps on every rank, data and model described, every quality reported alike."""
    for events in ranks:
        seen = moments(events)
        began, ended = seen.index(f"{manifest.kind} began"), seen.index(f"{manifest.kind} ended")
        assert {index for index, moment in enumerate(seen) if moment == "StepFinished"} <= set(range(began, ended))
        assert len(steps(events)) == len(steps(ranks[0])) > 0
        rows_by_name, model = DESCRIBED[manifest.name]
        assert {event.name: event.rows for event in events if isinstance(event, DataDescribed)} == rows_by_name
        (told,) = [event for event in events if isinstance(event, ModelDescribed)]
        sizes = (told.layers, told.heads, told.head_size, told.sequence, told.causal)
        assert (*sizes, told.matmul_parameters, told.lora_parameters) == model
        if manifest.kind == "training" and "evaluation ended" in seen:
            assert seen.index("evaluation ended") < began, "the first evaluation is not training time"
        assert reports(events) == reports(ranks[0])
        assert {quality.name for quality in manifest.qualities} <= set().union(*reports(events))
        if manifest.kind == "training":
            assert all(step.loss is not None for step in steps(events) if step.samples)
    assert all(sum(step.samples for step in of_all) for of_all in zip(*map(steps, ranks), strict=True))


def check_rows(_manifest: Manifest, ranks: list[list[Event]]) -> None:
    """Rows of one name have the same labels; each device measures alone, then all at once."""
    for events in ranks:
        found = rows(events)
        measured = [row for row in found if row.status == "ok"]
        assert measured and {row.status for row in found} <= {"ok", "unsupported"}, found
        labels: dict[str, Any] = {row.name: set(row.labels) for row in found}
        assert all(set(row.labels) == labels[row.name] for row in found)
        turns = [row.labels["devices"] for row in found if "devices" in row.labels]
        assert sorted(set(turns), reverse=True) == (["single", "all"] if len(ranks) > 1 else ["single"]) or not turns
        assert turns == sorted(turns, reverse=True)


def test_no_case_is_left_out() -> None:
    root = Path(__file__).parents[2] / "cases" / "flagperf_cases"
    assert set(FOLDERS) == {path.parent.name for path in root.glob("*/case.toml")} == set(QUICK)

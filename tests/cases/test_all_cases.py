"""What every case of this repository has in common."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from case_harness import CaseHarness

from flagperf.api import PRECISIONS
from flagperf.kinds import KINDS
from flagperf.report.sections.result_tables import check_layout
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import Layer, resolve
from flagperf_cases import flagperf_cases

FOLDERS = {case.manifest.parent.name: case.manifest.parent for case in flagperf_cases()}
FILES = {"case.toml", "README.md", "__init__.py", "case.py"}
PROFILES = ("standard", "tiny")
ROW_PROFILES = ("standard", "quick", "sustained", "tiny")

every_case = pytest.mark.parametrize("name", FOLDERS)


def has_steps(manifest: Manifest) -> bool:
    """Else it measures rows, from data of its own."""
    return KINDS[manifest.kind].has_steps


@every_case
def test_the_same_files_have_the_same_names(name: str) -> None:
    manifest = CaseHarness(name).manifest()
    assert {path.name for path in FOLDERS[name].iterdir()} >= FILES
    assert manifest.check_files and manifest.check_files.endswith(":check_files")
    assert manifest.name == name


@every_case
def test_profiles_and_page_are_valid(name: str) -> None:
    manifest = CaseHarness(name).manifest()
    allowed = PROFILES if has_steps(manifest) else ROW_PROFILES
    assert manifest.default_profile == "tiny"
    assert set(PROFILES) <= set(manifest.profiles) <= set(allowed)
    assert [name for name, profile in manifest.profiles.items() if profile.published] == ["standard"]
    for profile in manifest.profiles.values():
        resolve(manifest, [Layer("profile", profile.values)])
    assert set(manifest.precisions) <= set(PRECISIONS)
    check_layout(manifest)


@every_case
def test_the_page_and_the_readme_link_to_data_and_checkpoint(name: str) -> None:
    manifest = CaseHarness(name).manifest()
    assert bool(manifest.links("dataset")) == has_steps(manifest)
    assert bool(manifest.links("checkpoint")) == (has_steps(manifest) and name != "llama2_70b")
    for link in (*manifest.links("dataset"), *manifest.links("checkpoint")):
        assert link.rpartition(" ")[2] in (FOLDERS[name] / "README.md").read_text()


@every_case
def test_a_base_case_has_figures_in_two_languages_and_a_headline(name: str) -> None:
    manifest = CaseHarness(name).manifest()
    assert any(figure.headline for figure in manifest.figures) is (manifest.kind == "base")
    assert all(set(figure.title) == {"en", "zh"} for figure in manifest.figures)


@every_case
def test_checks_before_a_run_import_no_heavy_package(name: str) -> None:
    """They run in the agent, which has to stay light."""
    manifest = CaseHarness(name).manifest()
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


def test_no_case_is_left_out() -> None:
    root = Path(__file__).parents[2] / "cases" / "flagperf_cases"
    assert set(FOLDERS) == {path.parent.name for path in root.glob("*/case.toml")} and len(FOLDERS) >= 5

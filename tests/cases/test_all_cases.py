"""What every case of this repository has in common."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from case_harness import CaseHarness

from flagperf.api import PRECISIONS
from flagperf.report.sections.rows import check_layout
from flagperf.spec.values import Layer, resolve
from flagperf_cases import flagperf_cases

FOLDERS = {case.manifest.parent.name: case.manifest.parent for case in flagperf_cases()}
FILES = {"case.toml", "README.md", "__init__.py", "case.py", "data.py", "preflight.py", "evaluation.py", "synthetic.py"}
"""llama2_70b is not evaluated."""

every_case = pytest.mark.parametrize("name", FOLDERS)


@every_case
def test_the_same_files_have_the_same_names(name: str) -> None:
    missing = FILES - {path.name for path in FOLDERS[name].iterdir()}
    assert missing == ({"evaluation.py"} if name == "llama2_70b" else set())
    manifest = CaseHarness(name).manifest()
    assert manifest.check_files == f"flagperf_cases.{name}.preflight:check_files"
    assert manifest.name == name


@every_case
def test_profiles_and_page_are_valid(name: str) -> None:
    manifest = CaseHarness(name).manifest()
    assert (list(manifest.profiles), manifest.default_profile) == (["standard", "tiny"], "tiny")
    assert [profile.published for profile in manifest.profiles.values()] == [True, False]
    for profile in manifest.profiles.values():
        resolve(manifest, [Layer("profile", profile.values)])
    assert set(manifest.precisions) <= set(PRECISIONS)
    check_layout(manifest)


@every_case
def test_the_page_and_the_readme_link_to_data_and_checkpoint(name: str) -> None:
    page = CaseHarness(name).manifest().page
    readme = (FOLDERS[name] / "README.md").read_text()
    assert set(page.downloads) == ({"dataset"} if name == "llama2_70b" else {"checkpoint", "dataset"})
    for link in (link for kind in page.downloads for link in page.links(kind)):
        url = link.rpartition(" ")[2]
        assert url.startswith("https://") and url in readme


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

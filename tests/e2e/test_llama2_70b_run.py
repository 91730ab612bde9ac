"""The case llama2_70b through the real command line: two layouts, their alignment and their page; what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_flagperf import flagperf, metric, read_run
from indexed_datasets import write_indexed

pytestmark = pytest.mark.run


def bundle_at(folder: Path, shape: str) -> Path:
    (found,) = (folder / "runs").glob(f"*-{shape}-*")
    return found


def test_four_ranks_align_with_one_process_and_have_their_page(tmp_path: Path) -> None:
    for devices in ("1", "4"):
        done = flagperf(tmp_path, "run", "llama2_70b", "--vendor", "cpu", "--devices", devices)
        assert done.code == 0, done.stderr
    assert "shape: 1x4 in TP2PP2DP1" in done.stderr
    alone, four = bundle_at(tmp_path, "1x1"), bundle_at(tmp_path, "1x4")
    run = read_run(four)
    assert run["job"]["config"]["values"]["parallel"] == {"tp": 2, "pp": 2, "dp": 1, "stages": []}
    assert metric(run, "samples_kept")["value"] == 25 * 8
    assert metric(run, "bubble_theory")["value"] == pytest.approx(1 / 3)
    assert len(metric(run, "mem_used")["inputs"]["per_device"]) == 4
    for bundle in (alone, four):
        assert flagperf(tmp_path, "runs", "verify", bundle.name).code == 0

    exact = flagperf(tmp_path, "align", four.name, alone.name, "--rule", "exact", "--tolerance", "1e-5")
    assert exact.code == 0, exact.stdout
    curve = flagperf(tmp_path, "runs", "curve", alone.name)
    (tmp_path / "reference.csv").write_text(curve.stdout)
    page = flagperf(tmp_path, "report", four.name, "--reference", "reference.csv", "--format", "md", "--lang", "zh")
    assert page.code == 0, page.stderr
    assert "| TP2PP2DP1 |" in page.stdout and "| True  " in page.stdout


def cut(data: Path) -> None:
    data.with_suffix(".bin").write_bytes(data.with_suffix(".bin").read_bytes()[:-2])


def of_another_version(data: Path) -> None:
    write_indexed(data, [[5] * 100], version=2)


def test_broken_data_is_said_before_anything_starts(tmp_path: Path) -> None:
    data = tmp_path / "data" / "tokens"
    data.parent.mkdir()
    command = [
        "run",
        "llama2_70b",
        "--vendor",
        "cpu",
        "--data-dir",
        "data",
        "--set",
        "data.source=indexed",
        "data.prefix=tokens",
    ]
    for damage, words in ((cut, "truncated"), (of_another_version, "has version 2")):
        write_indexed(data, [[5] * 100])
        damage(data)
        done = flagperf(tmp_path, *command)
        assert (done.code, words in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    assert not (tmp_path / "runs").exists()

"""Only bundles are removed, and only those of runs that are over."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.bundle.bundle import create_bundle, seal
from flagperf.bundle.listing import removable, remove
from flagperf.bundle.liveness import holding
from flagperf.errors import BadInput
from run_builders import make_run

RUN_ID = "20260101T000000Z-demo-cpu-1x1-abc123"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = create_bundle(tmp_path / "runs", make_run(RUN_ID), ())
    seal(path)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as raised:
        removable(path, force=False)
    assert str(raised.value).endswith("nothing was removed")
    return str(raised.value)


def test_a_bundle_is_removed_and_nothing_is_left(bundle: Path) -> None:
    (bundle / ".run.json.x7f2").write_text("left by a killed command")
    found = removable(bundle, force=False)
    assert (found.path, found.line.id) == (bundle, RUN_ID)
    assert found.num_bytes == sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    remove([found])
    assert list(bundle.parent.iterdir()) == []


def test_what_a_link_in_a_bundle_points_to_stays(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    (bundle / "logs" / "link").symlink_to(tmp_path / "precious")
    remove([removable(bundle, force=False)])
    assert (tmp_path / "precious" / "file").read_text() == "mine"


def test_a_link_to_a_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(bundle)
    for path in (link, Path(f"{link}/"), link / "." / ".." / "link"):
        assert "is a link, not the folder of a run" in refusal(path)
    assert bundle.is_dir()


@pytest.mark.parametrize("name", ["thesis.tex", ".ssh", "events2"])
def test_a_folder_with_anything_else_is_refused(bundle: Path, name: str) -> None:
    (bundle / name).mkdir()
    assert f"has {name!r}, which no run writes" in refusal(bundle)


def test_a_run_that_is_running_is_refused_even_with_force(bundle: Path) -> None:
    with holding(bundle):
        assert f"{RUN_ID} is running" in refusal(bundle)
        with pytest.raises(BadInput):
            removable(bundle, force=True)


def test_a_run_that_may_be_running_elsewhere_needs_force(tmp_path: Path) -> None:
    path = create_bundle(tmp_path, make_run(RUN_ID), ())
    assert "cannot be seen from here" in refusal(path)
    remove([removable(path, force=True)])
    assert not path.exists()

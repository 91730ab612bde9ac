"""The case glm through the real command line: two ranks, its bundle and its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_flagperf import bundle_of, flagperf, read_run

pytestmark = pytest.mark.run

SHORT = (
    "training.max_steps=4",
    "training.batch_size=5",
    "training.warmup_steps=1",
    "data.rows=18",
    "data.eval_rows=9",
    "model.width=16",
)


def test_two_ranks_leave_a_bundle_that_holds_and_its_page(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "glm", "--vendor", "cpu", "--devices", "2", "--set", *SHORT)
    assert done.code == 0, done.stderr
    assert "Published results are left out" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    metrics = {metric["name"]: metric for metric in read_run(bundle_of(tmp_path))["metrics"]}
    assert metrics["steps_kept"]["value"] == 3
    assert metrics["samples_kept"]["value"] == 8 + 10 + 8  # 18 samples do not divide into steps of 10
    assert 0 < metrics["padding_ratio"]["value"] < 1
    assert {metrics[name]["inputs"]["evaluated"] for name in ("acc", "em", "f1")} == {9}
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0
    for lang, words in (("en", "Natural Language Understanding"), ("zh", "自然语言理解")):
        page = flagperf(tmp_path, "report", "latest", "--format", "md", "--lang", lang)
        assert page.code == 0, page.stderr
        assert words in page.stdout


def test_data_in_another_form_is_said_before_anything_starts(tmp_path: Path) -> None:
    """The original's folder as it is unpacked: arrays and a checkpoint, no text and no vocabulary."""
    arrays = tmp_path / "data/ReCoRD/glm_train_eval_hdf5_sparse/train_hdf5/train_sparse.hdf5"
    arrays.parent.mkdir(parents=True)
    arrays.write_bytes(b"\x89HDF\r\n\x1a\n")
    done = flagperf(tmp_path, "run", "glm", "--vendor", "cpu", "--profile", "standard", "--data-dir", "data")
    assert done.code == 2
    assert "HDF5" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()

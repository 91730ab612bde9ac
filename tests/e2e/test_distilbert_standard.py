"""The published configuration at true width and length, cut to what a CPU can do in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_flagperf import bundle_of, flagperf, metric, read_run

pytestmark = [pytest.mark.run, pytest.mark.full]


@pytest.fixture
def data_dir(tmp_path: Path, shared_data: Path) -> Path:
    """Real SST-2, the real vocabulary, and a checkpoint of true width with random weights."""
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    folder = tmp_path / "data"
    checkpoint = folder / "distilbert-base-uncased"
    checkpoint.mkdir(parents=True)
    (folder / "SST-2").symlink_to(shared_data / "sst2" / "SST-2")
    DistilBertForMaskedLM(DistilBertConfig(n_layers=1)).save_pretrained(checkpoint)
    vocabulary = shared_data / "tokenizers" / "bert-base-uncased" / "vocab.txt"
    (checkpoint / "vocab.txt").symlink_to(vocabulary)
    return folder


def test_two_steps_at_true_width_on_real_data(tmp_path: Path, data_dir: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = flagperf(
        work,
        "run",
        "distilbert",
        "--profile",
        "standard",
        "--data-dir",
        str(data_dir),
        "--set",
        "model.layers=1",
        "training.max_steps=2",
        "training.batch_size=1",
        "training.warmup_steps=1",
        "evaluation.max_rows=4",
        "data.num_workers=0",
    )
    assert done.code == 0, done.stderr
    run = read_run(bundle_of(work))
    assert metric(run, "steps_kept")["value"] == 1
    assert metric(run, "padding_ratio")["value"] > 0.8  # real sentences in rows of 512
    assert metric(run, "tflops_per_device")["value"] > 0
    files = {file["path"]: file["sha256"] for file in run["job"]["data_files"]}
    assert {"SST-2/train.tsv", "SST-2/dev.tsv", "distilbert-base-uncased/vocab.txt"} <= set(files)
    page = flagperf(work, "report", "latest", "--format", "md", "--lang", "zh").stdout
    assert "bs=1" in page
    assert files["SST-2/dev.tsv"] in page

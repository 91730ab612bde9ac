"""The published configuration at true width and length, cut to what a CPU can do in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from case_harness import CaseHarness
from e2e_flagperf import bundle_of, flagperf, metric, read_run
from glm_checkpoints import save_checkpoint

from flagperf_cases.glm.data import CHECKPOINT, SPECIAL
from flagperf_cases.glm.record import WORDS, synthetic_records

pytestmark = [pytest.mark.run, pytest.mark.full]

SETTINGS = ("model.layers=1", "training.max_steps=2", "training.batch_size=1")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The real layout with few made-up records: three or four candidates instead of ten."""
    import torch

    from flagperf_cases.glm.case import Glm

    folder = tmp_path / "data"
    (folder / "ReCoRD").mkdir(parents=True)
    for name, num_records in (("train", 2), ("val", 1)):
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in synthetic_records(name, num_records))
        (folder / f"ReCoRD/{name}.jsonl").write_bytes(lines)
    (folder / "bert-base-uncased").mkdir()
    words = [*SPECIAL, *WORDS]
    words += [f"[unused{number}]" for number in range(len(words), 30_522)]
    (folder / "bert-base-uncased/vocab.txt").write_text("\n".join(words) + "\n")
    torch.manual_seed(0)
    model = Glm(SimpleNamespace(**CaseHarness("glm").values("standard", model__layers=1)["model"]))
    save_checkpoint(folder / CHECKPOINT, {"module": model.half().state_dict()})
    return folder


def test_two_steps_at_true_width_start_from_a_checkpoint(tmp_path: Path, data_dir: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = flagperf(work, "run", "glm", "--profile", "standard", "--data-dir", str(data_dir), "--set", *SETTINGS)
    assert done.code == 0, done.stderr
    run = read_run(bundle_of(work))
    assert len(run["job"]["data_files"]) == 5
    assert metric(run, "steps_dropped")["value"] == 2  # the published warm-up is longer
    assert metric(run, "em")["inputs"]["evaluated"] == 1
    events = (bundle_of(work) / "events/rank-00000.jsonl").read_bytes().splitlines()
    steps = [event for event in map(json.loads, events) if event["type"] == "step_finished"]
    assert [step["work"]["samples"] for step in steps] == [1, 1]
    assert [(step["work"]["tokens"] + step["work"]["padded_tokens"]) % 512 for step in steps] == [0, 0]

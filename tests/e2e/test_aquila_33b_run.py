"""The case aquila_33b through the real command line: two ranks from Megatron's shards, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from aquila_checkpoints import SMALL_CHANGES, small_model, write_megatron
from e2e_flagperf import bundle_of, flagperf, metric, read_run

pytestmark = pytest.mark.run

FROM_SHARDS = [
    "model.checkpoint=megatron",
    "data.samples=24",
    "inference.warmup_steps=1",
    *(f"{name.replace('__', '.')}={size}" for name, size in SMALL_CHANGES.items()),
]
COMMAND = ("run", "aquila_33b", "--vendor", "cpu", "--devices", "2", "--data-dir", "data", "--set", *FROM_SHARDS)


def test_two_ranks_score_from_four_shards_and_have_their_page(tmp_path: Path) -> None:
    write_megatron(tmp_path / "data", small_model(), 4, padded_vocabulary=64)
    done = flagperf(tmp_path, *COMMAND)
    assert done.code == 0, done.stderr
    run = read_run(bundle_of(tmp_path))
    assert run["job"]["config"]["values"]["parallel"] == {"tp": 2, "pp": 1, "dp": 1}
    assert [file["path"] for file in run["job"]["data_files"]][1:] == [
        f"ckpts/iter_0135000/mp_rank_{rank:02d}/model_optim_rng.pt" for rank in range(4)
    ]
    assert metric(run, "loss")["inputs"]["evaluated"] == 24
    assert metric(run, "p_infer_core")["inputs"]["engine"].startswith("flagperf decoder (torch 2.")
    assert metric(run, "p_infer_core")["value"] < metric(run, "p_infer_padded")["value"]
    assert metric(run, "p_val_core")["reason"] == "not_applicable"
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0
    for lang, words in (("en", "Last-word accuracy"), ("zh", "末词准确率")):
        page = flagperf(tmp_path, "report", "latest", "--format", "md", "--lang", lang)
        assert page.code == 0, page.stderr
        assert words in page.stdout


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was_run",)


def test_a_malicious_shard_is_refused_before_anything_starts(tmp_path: Path) -> None:
    import torch

    write_megatron(tmp_path / "data", small_model(), 2, padded_vocabulary=64)
    torch.save({"args": Malicious()}, tmp_path / "data/ckpts/iter_0135000/mp_rank_01/model_optim_rng.pt")
    done = flagperf(tmp_path, *COMMAND)
    assert done.code == 2
    assert "mkdir, which is not data" in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]

"""Weights from Megatron's shards and a Hugging Face folder: the same at any number of shards, and nothing is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from aquila_harness import SMALL, small_model, write_megatron

from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.checkpoint import check_checkpoint, open_checkpoint

pytestmark = pytest.mark.run


@pytest.mark.parametrize("ways", [1, 2, 4])
def test_every_number_of_shards_gives_the_same_weights(tmp_path: Path, ways: int) -> None:
    import torch

    model = small_model()
    write_megatron(tmp_path, model, ways, padded_vocabulary=64)
    assert len(check_checkpoint(tmp_path, "megatron", SMALL)) == 1 + ways
    weight = open_checkpoint(tmp_path, "megatron", SMALL)
    for name, parameter in model.named_parameters():
        assert torch.equal(weight(name), parameter), name


def test_a_hugging_face_folder_gives_the_same_weights(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    model = small_model()
    state = {
        name if name.startswith("lm_head") else f"model.{name}": value for name, value in model.state_dict().items()
    }
    (tmp_path / "hf").mkdir()
    save_file(state, tmp_path / "hf/model.safetensors")
    check_checkpoint(tmp_path, "huggingface", SMALL)
    weight = open_checkpoint(tmp_path, "huggingface", SMALL)
    for name, parameter in model.named_parameters():
        assert torch.equal(weight(name), parameter), name


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was_run",)


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    write_megatron(tmp_path, small_model(), 1, 64)
    path = tmp_path / "ckpts/iter_0135000/mp_rank_00/model_optim_rng.pt"
    torch.save({"args": Malicious(), "model": {"language_model": {}}}, path)
    with pytest.raises(BadInput, match="mkdir, which is not data"):
        check_checkpoint(tmp_path, "megatron", SMALL)
    with pytest.raises(BadInput, match="mkdir, which is not data"):
        open_checkpoint(tmp_path, "megatron", SMALL)
    assert not (tmp_path / "was_run").exists()


def _cut(folder: Path) -> None:
    path = folder / "ckpts/iter_0135000/mp_rank_01/model_optim_rng.pt"
    path.write_bytes(path.read_bytes()[:-100])


def _lose_a_shard(folder: Path) -> None:
    (folder / "ckpts/iter_0135000/mp_rank_00/model_optim_rng.pt").unlink()


def _add_a_stage(folder: Path) -> None:
    (folder / "ckpts/iter_0135000/mp_rank_01").rename(folder / "ckpts/iter_0135000/mp_rank_01_000")


def _name_no_iteration(folder: Path) -> None:
    (folder / "ckpts/latest_checkpointed_iteration.txt").write_text("release\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "cannot read the weights .*mp_rank_01"),
        (_lose_a_shard, "without a gap"),
        (_add_a_stage, "without pipeline stages; found: mp_rank_00, mp_rank_01_000"),
        (_name_no_iteration, "should hold a number like 135000, not 'release'"),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    write_megatron(tmp_path, small_model(), 2, 64)
    damage(tmp_path)
    with pytest.raises(BadInput, match=message):
        check_checkpoint(tmp_path, "megatron", SMALL)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    import dataclasses

    write_megatron(tmp_path, small_model(), 2, 64)
    with pytest.raises(BadInput, match="does not fit the model of this run"):
        check_checkpoint(tmp_path, "megatron", dataclasses.replace(SMALL, ffn=64))
    with pytest.raises(BadInput, match=r"word_embeddings\.weight has the shape"):
        check_checkpoint(tmp_path, "megatron", dataclasses.replace(SMALL, vocabulary=100))

"""Weights from Megatron's shards and a Hugging Face folder: the same at any number of shards, and nothing is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from aquila_checkpoints import SMALL, small_model, write_huggingface, write_megatron

from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.checkpoint import ITERATION, check_checkpoint, open_checkpoint

pytestmark = pytest.mark.run


@pytest.mark.parametrize("ways", [1, 2, 4, 8])
def test_every_number_of_shards_gives_the_same_weights(tmp_path: Path, ways: int) -> None:
    model = small_model()
    write_megatron(tmp_path, model, ways, padded_vocabulary=64)
    assert len(check_checkpoint(tmp_path, "megatron", SMALL)) == 1 + ways
    weight = open_checkpoint(tmp_path, "megatron", SMALL)
    for name, parameter in model.named_parameters():
        assert torch.equal(weight(name), parameter), name


@pytest.mark.parametrize(
    ("ways", "stages", "core"),
    [(2, (), "fused"), (1, (), "plain"), (2, (1, 1), ""), (2, (1, 2), "fused"), (1, (0, 2, 1), "plain")],
)
def test_megatron_core_and_pipeline_stages_give_the_same_weights(
    tmp_path: Path, ways: int, stages: tuple[int, ...], core: str
) -> None:
    shape = dataclasses.replace(SMALL, layers=sum(stages) or 2)
    model = small_model(shape)
    write_megatron(tmp_path, model, ways, padded_vocabulary=64, stages=stages, core=core)
    assert len(check_checkpoint(tmp_path, "megatron", shape)) == 1 + ways * max(1, len(stages))
    weight = open_checkpoint(tmp_path, "megatron", shape)
    for name, parameter in model.named_parameters():
        assert torch.equal(weight(name), parameter), name
    for wrong in (1, 5):
        with pytest.raises(BadInput, match="does not fit the model of this run"):
            check_checkpoint(tmp_path, "megatron", dataclasses.replace(shape, layers=wrong))


def test_a_released_checkpoint_has_no_iteration(tmp_path: Path) -> None:
    write_megatron(tmp_path, small_model(), 1, 64)
    (tmp_path / "ckpts/iter_0135000").rename(tmp_path / "ckpts/release")
    (tmp_path / "ckpts/latest_checkpointed_iteration.txt").write_text("release\n")
    assert len(check_checkpoint(tmp_path, "megatron", SMALL)) == 2


def test_weights_in_the_form_of_an_old_torch_are_refused_before_a_run(tmp_path: Path) -> None:
    old = {"_use_new_zipfile_serialization": False}
    model = small_model()
    write_megatron(tmp_path, model, 2, padded_vocabulary=64, form=old)
    write_huggingface(tmp_path, model)
    (tmp_path / "hf/model.safetensors").unlink()
    state = {name if name.startswith("lm_head") else f"model.{name}": p for name, p in model.state_dict().items()}
    torch.save(state, tmp_path / "hf/pytorch_model.bin", **old)
    for form in ("megatron", "huggingface"):
        with pytest.raises(BadInput, match="in the format of torch before"):
            check_checkpoint(tmp_path, form, SMALL)


def test_a_hugging_face_folder_gives_the_same_weights(tmp_path: Path) -> None:
    model = small_model()
    write_huggingface(tmp_path, model)
    files = check_checkpoint(tmp_path, "huggingface", SMALL)
    assert [path.name for path in files] == ["config.json", "model.safetensors"]
    weight = open_checkpoint(tmp_path, "huggingface", SMALL)
    for name, parameter in model.named_parameters():
        assert torch.equal(weight(name), parameter), name


def saved(content: Callable[[], Any]) -> Callable[[Path], None]:
    """Put something else in place of a shard."""
    return lambda home: torch.save(content(), home / "mp_rank_00/model_optim_rng.pt")


def nested() -> dict[str, Any]:
    state: dict[str, Any] = {}
    state["again"] = state
    return {"model": {"language_model": state}}


def cut(home: Path) -> None:
    path = home / "mp_rank_01/model_optim_rng.pt"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "cannot read the weights .*mp_rank_01"),
        (lambda home: (home / "mp_rank_00/model_optim_rng.pt").unlink(), "without gaps"),
        (
            lambda home: (home / "mp_rank_01").rename(home / "mp_rank_01_000"),
            "found: mp_rank_00, mp_rank_01_000",
        ),
        (
            lambda home: (home.parent / ITERATION).write_text("latest\n"),
            "a number like 135000, not 'latest'",
        ),
        (lambda home: (home / "__0_0.distcp").touch(), "distributed form .* --ckpt-convert-format torch"),
        (saved(lambda: {"model0": {}, "model1": {}}), "chunks of a virtual pipeline; .* without a virtual pipeline"),
        (saved(lambda: {"model": {"language_model": {1: torch.zeros(2)}}}), "whose name is not text, '1'"),
        (saved(nested), "nested too deeply"),
        (saved(lambda: {"model": {"weight": 1}}), r"nor names as Megatron-core has them \(decoder\.layers\.0\."),
    ],
)
def test_damaged_checkpoints_are_refused(tmp_path: Path, damage: Any, message: str) -> None:
    write_megatron(tmp_path, small_model(), 2, 64)
    damage(tmp_path / "ckpts/iter_0135000")
    with pytest.raises(BadInput, match=message):
        check_checkpoint(tmp_path, "megatron", SMALL)

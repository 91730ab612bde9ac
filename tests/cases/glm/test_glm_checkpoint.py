"""The published checkpoint's way into the model, and what does not get in."""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from case_harness import CaseHarness
from glm_checkpoints import save_checkpoint

from flagperf.errors import BadInput

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from flagperf_cases.glm.case import (  # noqa: E402
    Glm,
    load_checkpoint,
)
from flagperf_cases.glm.data import (  # noqa: E402
    check_checkpoint,
    weight_shapes,
)

CASE = CaseHarness("glm")

WEIGHTS = "200000/mp_rank_00_model_states.pt"


def model_values(**changes: Any) -> dict[str, Any]:
    return CASE.values("tiny", **{f"model__{key}": value for key, value in changes.items()})["model"]


def build(**changes: Any) -> Any:
    return Glm(SimpleNamespace(**model_values(**changes)))


@pytest.fixture
def original() -> Any:
    torch.manual_seed(7)
    return build(layers=3, sequence=40).half()


@pytest.fixture(params=["zip", "legacy"])
def folder(original: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """As the program that trained it wrote it: its arguments, a class of its own and states of random numbers beside
    the weights. That class is gone when the file is read."""
    module = ModuleType("gone_program")
    module.Scaler = type("Scaler", (), {"__module__": "gone_program"})
    scaler = module.Scaler()
    scaler.cur_scale = 65536.0
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "gone_program", module)
        content = {
            "module": original.state_dict(),
            "iteration": 200000,
            "args": argparse.Namespace(lr=1e-4, fp16=True),
            "loss_scaler": scaler,
            "random_rng_state": random.getstate(),
            "np_rng_state": numpy.random.get_state(),
            "torch_rng_state": torch.get_rng_state(),
        }
        save_checkpoint(tmp_path / "checkpoint", content, legacy=request.param == "legacy")
    return tmp_path / "checkpoint"


def problem(folder: Path, **changes: Any) -> str:
    """What is said before the run; the worker says it as well, and leaves its model as it was."""
    model = build(**changes)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(BadInput) as caught:
        load_checkpoint(model, folder)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(BadInput) as early:
        check_checkpoint(folder, model_values(**changes))
    assert str(folder) in str(early.value)
    assert str(early.value).partition(":")[0] == str(caught.value).partition(":")[0]
    return str(early.value)


def test_every_weight_is_taken_and_nothing_else(folder: Path, original: Any) -> None:
    model = build(layers=3, sequence=40)
    assert [path.name for path in check_checkpoint(folder, model_values(layers=3, sequence=40))] == [
        "latest_checkpointed_iteration.txt",
        "mp_rank_00_model_states.pt",
    ]
    load_checkpoint(model, folder)
    for name, tensor in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor.float()), name


def test_shapes_are_known_without_the_model() -> None:
    state = build(layers=2).state_dict()
    assert weight_shapes(model_values(layers=2)) == {name: tuple(tensor.shape) for name, tensor in state.items()}


def test_names_of_weights_are_the_published_ones() -> None:
    names = set(build(layers=1).state_dict())
    parts = [
        "input_layernorm",
        "post_attention_layernorm",
        "attention.query_key_value",
        "attention.dense",
        "mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
    ]
    assert names == {
        "word_embeddings.weight",
        "transformer.position_embeddings.weight",
        "transformer.block_position_embeddings.weight",
        *(f"transformer.final_layernorm.{kind}" for kind in ("weight", "bias")),
        *(f"transformer.layers.0.{part}.{kind}" for part in parts for kind in ("weight", "bias")),
    }


def test_a_smaller_model_takes_the_first_layers_and_positions(folder: Path, original: Any) -> None:
    model = build(layers=1, sequence=36)
    check_checkpoint(folder, model_values(layers=1, sequence=36))
    load_checkpoint(model, folder)
    positions = original.transformer.position_embeddings.weight
    assert torch.equal(model.transformer.position_embeddings.weight, positions[:37].float())


def test_a_longer_model_keeps_its_own_rows_for_the_positions_that_are_missing(folder: Path, original: Any) -> None:
    model = build(layers=3, sequence=50)
    check_checkpoint(folder, model_values(layers=3, sequence=50))
    own = model.transformer.block_position_embeddings.weight.detach().clone()
    load_checkpoint(model, folder)
    loaded = model.transformer.block_position_embeddings.weight
    assert torch.equal(loaded[:41], original.transformer.block_position_embeddings.weight.float())
    assert torch.equal(loaded[41:], own[41:])


def test_a_checkpoint_that_does_not_fit_is_refused(folder: Path) -> None:
    assert "transformer.layers.3.attention.query_key_value.weight is missing" in problem(folder, layers=4)
    words = "word_embeddings.weight has the shape (64, 64), not (64, 32)"
    assert words in problem(folder, layers=3, width=32)


def test_missing_and_unknown_weights_are_named(tmp_path: Path, original: Any) -> None:
    state = original.state_dict()
    del state["transformer.final_layernorm.bias"]
    save_checkpoint(tmp_path, {"module": {**state, "pooler": torch.ones(1)}})
    assert "final_layernorm.bias is missing, pooler is unknown" in problem(tmp_path, layers=3)


@pytest.mark.parametrize("content", [{"model": {}}, {"module": {"word_embeddings.weight": 3}}, [1, 2]])
def test_a_file_without_weights_is_refused(tmp_path: Path, content: Any) -> None:
    save_checkpoint(tmp_path, content)
    assert "has no weights under the key `module`" in problem(tmp_path)


class Malicious:
    """What it is pickled as: a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("function", "words"),
    [(os.mkdir, "posix.mkdir"), (exec, "exec"), (argparse.Namespace, "argparse.Namespace")],
)
def test_a_pickle_that_calls_something_is_refused(
    tmp_path: Path, original: Any, function: Any, words: str, legacy: bool
) -> None:
    harm = tmp_path / "harm"
    arguments = {exec: (f"import os; os.mkdir({str(harm)!r})",), argparse.Namespace: ()}.get(function, (str(harm),))
    content = {"module": original.state_dict(), "args": Malicious(function, *arguments)}
    save_checkpoint(tmp_path, content, legacy=legacy)
    message = problem(tmp_path, layers=3)
    assert "cannot read the weights" in message
    assert words in message
    assert not harm.exists()


def test_what_was_allowed_for_one_file_is_not_kept_for_the_next(folder: Path) -> None:
    before = set(torch.serialization.get_safe_globals())
    load_checkpoint(build(layers=3, sequence=40), folder)
    assert set(torch.serialization.get_safe_globals()) == before


def test_a_torn_file_is_refused(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:5000])
    assert "cannot read the weights" in problem(folder, layers=3)

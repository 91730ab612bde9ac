"""The model, and the published checkpoint's way into it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from case_harness import CaseHarness

from flagperf.errors import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from flagperf_cases.distilbert.case import build_model, matmul_parameters  # noqa: E402
from flagperf_cases.distilbert.data import CHECKPOINT, encoder_shapes  # noqa: E402

CASE = CaseHarness("distilbert")


def model_values(profile: str = "tiny", **changes: Any) -> SimpleNamespace:
    found = CASE.values(profile, **{f"model__{key}": value for key, value in changes.items()})
    return SimpleNamespace(**found["model"])


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any]:
    """A data folder with a masked-LM checkpoint of 3 layers and 40 positions, and the model it was saved from."""
    config = transformers.DistilBertConfig(
        n_layers=3, dim=64, n_heads=4, hidden_dim=128, vocab_size=100, max_position_embeddings=40
    )
    torch.manual_seed(7)
    model = transformers.DistilBertForMaskedLM(config)
    model.save_pretrained(tmp_path / CHECKPOINT)
    return tmp_path, model


def as_pickle(data_dir: Path, change: Any = lambda state: state) -> None:
    folder = data_dir / CHECKPOINT
    from safetensors.torch import load_file

    torch.save(change(load_file(folder / "model.safetensors")), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def test_standard_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        model = build_model(model_values("standard", checkpoint=False))
    assert sum(parameter.numel() for parameter in model.parameters()) == 66_955_010
    assert matmul_parameters(model_values("standard")) == 42_467_328
    config = model.config
    assert (config.dropout, config.attention_dropout, config.seq_classif_dropout, config.num_labels) == (
        0.1,
        0.1,
        0.2,
        2,
    )


@pytest.mark.parametrize("form", ["safetensors", "pickle"])
def test_the_encoder_comes_from_the_checkpoint_and_the_classifier_from_the_seed(
    saved: tuple[Path, Any], form: str
) -> None:
    data_dir, original = saved
    if form == "pickle":
        as_pickle(data_dir)
    torch.manual_seed(0)
    model = build_model(model_values(layers=3, sequence=40, checkpoint=True), data_dir)
    torch.manual_seed(0)
    fresh = build_model(model_values(layers=3, sequence=40))
    for name, tensor in original.distilbert.state_dict().items():
        assert torch.equal(model.distilbert.state_dict()[name], tensor), name
    assert torch.equal(model.classifier.weight, fresh.classifier.weight)
    assert not torch.equal(
        model.distilbert.embeddings.word_embeddings.weight, fresh.distilbert.embeddings.word_embeddings.weight
    )


def test_a_smaller_model_takes_the_first_layers_and_positions(saved: tuple[Path, Any]) -> None:
    data_dir, original = saved
    model = build_model(model_values(layers=1, sequence=32, checkpoint=True), data_dir)
    assert len(model.distilbert.transformer.layer) == 1
    positions = original.distilbert.embeddings.position_embeddings.weight
    assert torch.equal(model.distilbert.embeddings.position_embeddings.weight, positions[:32])


def test_an_encoder_saved_without_a_head_is_read_too(saved: tuple[Path, Any]) -> None:
    data_dir, original = saved
    original.distilbert.save_pretrained(data_dir / CHECKPOINT)
    model = build_model(model_values(layers=3, sequence=40, checkpoint=True), data_dir)
    expected = original.distilbert.embeddings.word_embeddings.weight
    assert torch.equal(model.distilbert.embeddings.word_embeddings.weight, expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": 4, "sequence": 40}, r"layer\.3\.\S+ is missing, .* and 13 more"),
        ({"layers": 3, "sequence": 64}, r"position_embeddings.weight has the shape \(40, 64\), not \(64, 64\)"),
        (
            {"layers": 3, "sequence": 40, "width": 32},
            r"word_embeddings.weight has the shape \(100, 64\), not \(100, 32\)",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(saved: tuple[Path, Any], change: dict[str, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        build_model(model_values(checkpoint=True, **change), saved[0])


def test_missing_and_unknown_weights_are_named(saved: tuple[Path, Any]) -> None:
    norm = "distilbert.embeddings.LayerNorm.bias"
    as_pickle(saved[0], lambda state: {name: state[name] for name in state if name != norm} | {"pooler": torch.ones(1)})
    with pytest.raises(BadInput, match=f"{norm} is missing, pooler is unknown"):
        build_model(model_values(layers=3, sequence=40, checkpoint=True), saved[0])


def test_the_weights_that_are_looked_for_before_a_run_are_those_of_the_model() -> None:
    with torch.device("meta"):
        state = build_model(model_values("standard", checkpoint=False)).state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in state.items() if name.startswith("distilbert.")}
    assert encoder_shapes(vars(model_values("standard"))) == expected


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_torn_file_is_refused(saved: tuple[Path, Any], name: str) -> None:
    if name.endswith("bin"):
        as_pickle(saved[0])
    path = saved[0] / CHECKPOINT / name
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadInput, match="cannot read the weights"):
        build_model(model_values(layers=3, sequence=40, checkpoint=True), saved[0])

"""The model: its size, its adapters, and folders that it comes from and goes to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from case_harness import CaseHarness

from flagperf.api import precision
from flagperf.errors import BadInput

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

from flagperf_cases.llama2_7b_finetune.case import (  # noqa: E402
    build_model,
    describe_model,
    matmul_parameters,
    save_merged,
    trainable,
)
from flagperf_cases.llama2_7b_finetune.data import (  # noqa: E402
    CHECKPOINT,
    check_checkpoint,
)

CASE = CaseHarness("llama2_7b_finetune")


def small(**changes: Any) -> Any:
    sizes = {"layers": 2, "width": 16, "heads": 4, "kv_heads": 2, "ffn": 24, "checkpoint": False}
    return CASE.settings("tiny", **{f"model__{key}": value for key, value in {**sizes, **changes}.items()})


def saved(data_dir: Path, max_shard_size: str = "1GB", **changes: Any) -> Any:
    """A folder of three layers, and the model that it was saved from."""
    torch.manual_seed(7)
    model = build_model(small(layers=3, **changes), precision("fp32"), None).unload()
    model.save_pretrained(data_dir / CHECKPOINT, max_shard_size=max_shard_size)
    return model


def facts(model: Any, config: Any) -> dict[str, Any]:
    """What the case tells its context about the model."""
    told: dict[str, Any] = {}
    describe_model(SimpleNamespace(config=config, describe_model=told.update), model)
    return told


def test_standard_has_the_published_numbers_of_parameters() -> None:
    config = CASE.settings("standard", model__checkpoint=False)
    with torch.device("meta"):
        model = build_model(config, precision("fp32"), None)
    assert facts(model, config) == {
        "parameters": 6_738_415_616,
        "matmul_parameters": 6_607_077_376,
        "lora_parameters": 4_194_304,
        "nominal_parameters": 7_000_000_000,
        "layers": 32,
        "heads": 32,
        "head_size": 128,
        "sequence": 512,
        "causal": True,
    }
    assert {name.split(".")[-4] for name, value in model.named_parameters() if value.requires_grad} == {
        "q_proj",
        "v_proj",
    }
    adapter = model.peft_config["default"]
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout, adapter.bias) == (8, 32, 0.05, "none")
    assert model.config.rms_norm_eps == 1e-5


@pytest.mark.parametrize("tied", [False, True])
def test_matmul_parameters_are_all_but_embedding_and_norms(tied: bool) -> None:
    config = small(tied=tied)
    model = build_model(config, precision("fp32"), None)
    products = [
        parameter.numel()
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad and "norm" not in name and "embed_tokens" not in name
    ]
    head = config.model.vocabulary * config.model.width if tied else 0  # the embedding is the head as well
    assert matmul_parameters(config.model) == sum(products) + head
    assert facts(model, config)["nominal_parameters"] is None


@pytest.mark.parametrize(
    ("name", "base", "adapters"),
    [
        ("fp32", "float32", "float32"),
        ("fp16", "float16", "float32"),
        ("bf16", "bfloat16", "bfloat16"),
        ("amp-bf16", "float32", "float32"),
    ],
)
def test_the_base_is_stored_and_the_adapters_are_trained_as_the_precision_says(
    name: str, base: str, adapters: str
) -> None:
    model = build_model(small(), precision(name), None)
    assert {parameter.dtype for parameter in trainable(model)} == {getattr(torch, adapters)}
    frozen = {parameter.dtype for parameter in model.parameters() if not parameter.requires_grad}
    assert frozen == {getattr(torch, base)}
    assert model.get_base_model().model.rotary_emb.inv_freq.dtype == torch.float32


def test_adapters_change_nothing_before_they_are_trained() -> None:
    torch.manual_seed(0)
    model = build_model(small(), precision("fp32"), None).eval()
    tokens = torch.arange(12).view(1, 12)
    with torch.no_grad(), model.disable_adapter():
        bare = model(input_ids=tokens).logits
    assert torch.equal(model(input_ids=tokens).logits, bare)


# --- folders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_shard_size", ["1GB", "4KB"])
def test_a_folder_is_read_whole_or_in_shards(tmp_path: Path, max_shard_size: str) -> None:
    original = saved(tmp_path, max_shard_size)
    config = small(layers=3, checkpoint=True)
    files = check_checkpoint(tmp_path / CHECKPOINT, vars(config.model))
    assert (len(files) > 3) == (max_shard_size == "4KB")
    model = build_model(config, precision("fp32"), tmp_path).unload()
    for name, tensor in original.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_smaller_model_takes_the_first_layers(tmp_path: Path) -> None:
    original = saved(tmp_path)
    model = build_model(small(layers=1, checkpoint=True), precision("bf16"), tmp_path).unload()
    assert len(model.model.layers) == 1
    expected = original.model.layers[0].mlp.up_proj.weight.to(torch.bfloat16)
    assert torch.equal(model.model.layers[0].mlp.up_proj.weight, expected)


def test_a_folder_that_lacks_a_weight_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    saved(tmp_path)
    path = tmp_path / CHECKPOINT / "model.safetensors"
    state = load_file(path)
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, path, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        build_model(small(layers=3, checkpoint=True), precision("fp32"), tmp_path)


def test_the_merged_folder_gives_the_same_logits_in_transformers(tmp_path: Path) -> None:
    saved(tmp_path / "data")
    (tmp_path / "data" / CHECKPOINT / "tokenizer.model").write_bytes(b"pieces")
    model = build_model(small(layers=3, checkpoint=True), precision("fp32"), tmp_path / "data").eval()
    generator = torch.Generator().manual_seed(3)
    for parameter in trainable(model):
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    tokens = torch.arange(40).view(2, 20)
    with torch.no_grad(), model.disable_adapter():
        before = model(input_ids=tokens).logits
    expected = model(input_ids=tokens).logits
    assert (expected - before).abs().max() > 0.05  # the adapters do something
    save_merged(model, tmp_path / "merged", tmp_path / "data" / CHECKPOINT)
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert type(merged) is transformers.LlamaForCausalLM
    torch.testing.assert_close(merged(input_ids=tokens).logits, expected, rtol=1e-4, atol=1e-5)
    assert (tmp_path / "merged" / "tokenizer.model").read_bytes() == b"pieces"


def test_out_of_memory_while_weights_are_loaded_is_not_said_to_be_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)

    def full(*_args: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", full)
    with pytest.raises(torch.OutOfMemoryError):
        build_model(small(checkpoint=True), precision("fp32"), tmp_path)

"""Llama from transformers with peft's LoRA adapters, from random weights or a Hugging Face folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from flagperf.api import Precision
from flagperf.errors import BadInput
from flagperf_cases.llama2_7b_finetune.checkpoint import CHECKPOINT, GET_CHECKPOINT, is_used

NOMINAL = {6_738_415_616: 7_000_000_000}
"""The sizes that published pages count with."""


def build_model(config: Any, precision: Precision, data_dir: Path | None, device: str = "cpu") -> Any:
    """The frozen base in the precision's storage type, with adapters in the type of its master weights.

    The adapters are all that is trained, so that a half precision base needs no second copy of itself.
    """
    dtype = getattr(torch, precision.storage)
    if config.model.checkpoint:
        assert data_dir is not None, "check_files has asked for --data-dir"
        base = load_base(data_dir / CHECKPOINT, config.model.layers, dtype, device)
    else:
        base = LlamaForCausalLM(model_config(config.model))
        cast(base.parameters(), dtype)
    return with_adapters(base, config.lora, getattr(torch, precision.master_weights))


def model_config(values: Any) -> LlamaConfig:
    return LlamaConfig(
        num_hidden_layers=values.layers, hidden_size=values.width, num_attention_heads=values.heads,
        num_key_value_heads=values.kv_heads, intermediate_size=values.ffn, vocab_size=values.vocabulary,
        max_position_embeddings=values.positions, initializer_range=values.initial_std,
        tie_word_embeddings=values.tied, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip


def with_adapters(base: Any, values: Any, dtype: torch.dtype) -> Any:
    """Freezes the base. Every adapter starts as nothing: its second matrix is zero."""
    settings = LoraConfig(
        task_type="CAUSAL_LM", r=values.rank, lora_alpha=values.alpha, lora_dropout=values.dropout,
        target_modules=list(values.targets), bias="none",
    )  # fmt: skip
    model = get_peft_model(base, settings, autocast_adapter_dtype=False)
    cast(trainable(model), dtype)
    return model


def cast(parameters: Iterable[torch.nn.Parameter], dtype: torch.dtype) -> None:
    """Parameters alone: `Module.to` would round the frequencies of the rotary positions as well."""
    for parameter in parameters:
        parameter.data = parameter.data.to(dtype)


def trainable(model: Any) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def describe(model: Any, values: Any) -> dict[str, Any]:
    """What MFU needs to know. The parameters are those of the base."""
    adapters = sum(parameter.numel() for parameter in trainable(model))
    base = sum(parameter.numel() for parameter in model.parameters()) - adapters
    return {
        "parameters": base, "matmul_parameters": matmul_parameters(values), "lora_parameters": adapters,
        "nominal_parameters": NOMINAL.get(base), "layers": values.layers, "heads": values.heads,
        "head_size": values.width // values.heads, "sequence": values.sequence, "causal": True,
    }  # fmt: skip


def matmul_parameters(values: Any) -> int:
    """Weights of the matrix products, those of the output included."""
    keys_and_values = 2 * values.width * (values.width // values.heads) * values.kv_heads
    layer = 2 * values.width**2 + keys_and_values + 3 * values.width * values.ffn
    return int(values.layers * layer + values.width * values.vocabulary)


# --- folders --------------------------------------------------------------------------------------------------------


def load_base(folder: Path, num_layers: int, dtype: torch.dtype, device: str) -> Any:
    """Straight onto the device, shard by shard: the host never holds the whole model. The first layers, where the
    folder has more; any other weight that is missing, unknown or of another shape is refused."""
    config = LlamaConfig.from_pretrained(folder)
    config.num_hidden_layers = num_layers
    try:
        model, report = LlamaForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, device_map={"": device}, output_loading_info=True, local_files_only=True
        )
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise BadInput(f"cannot read {folder}: {str(error).splitlines()[0]}; {GET_CHECKPOINT}") from None
    tied = config.tie_word_embeddings
    strange = [*report["missing_keys"], *(n for n in report["unexpected_keys"] if is_used(n, num_layers, tied=tied))]
    if strange:
        raise BadInput(f"{folder} does not fit the model of this run: {strange[0]}; {GET_CHECKPOINT}")
    return model


def save_merged(model: Any, folder: Path, tokenizer_folder: Path | None) -> None:
    """The adapters become part of the base; the folder is one that transformers, and this case, can read."""
    model.merge_and_unload().save_pretrained(folder)
    for name in ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"):
        if tokenizer_folder is not None and (tokenizer_folder / name).is_file():
            shutil.copyfile(tokenizer_folder / name, folder / name)

"""Llama from transformers with peft's LoRA adapters, from random weights or a Hugging Face folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from transformers import LlamaConfig, LlamaForCausalLM

from flagperf.api import Precision
from flagperf.errors import BadInput
from flagperf_cases.llama2_7b_finetune.checkpoint import CHECKPOINT, GET_CHECKPOINT, is_used
from flagperf_cases.safe_pickle import short_reason

NOMINAL_PARAMETERS = {6_738_415_616: 7_000_000_000}
"""Rounded counts that published pages use for their MFU."""


def build_model(config: Any, precision: Precision, data_dir: Path | None, device: str = "cpu") -> Any:
    """The frozen base in the precision's storage type, with adapters in the type of its master weights.

    Only the adapters are trained, so a half precision base needs no float32 copy.
    """
    dtype = getattr(torch, precision.storage)
    if config.model.checkpoint:
        assert data_dir is not None, "check_files requires --data-dir"
        base = load_base(data_dir / CHECKPOINT, config.model.layers, dtype, device)
    else:
        base = LlamaForCausalLM(model_config(config.model))
        cast(base.parameters(), dtype)
    return with_adapters(base, config.lora, getattr(torch, precision.master_weights))


def model_config(values: Any) -> LlamaConfig:
    return LlamaConfig(
        num_hidden_layers=values.layers,
        hidden_size=values.width,
        num_attention_heads=values.heads,
        num_key_value_heads=values.kv_heads,
        intermediate_size=values.ffn,
        vocab_size=values.vocabulary,
        max_position_embeddings=values.positions,
        initializer_range=values.initial_std,
        tie_word_embeddings=values.tied,
        rms_norm_eps=1e-5,
        bos_token_id=None,
        eos_token_id=None,
    )


def with_adapters(base: Any, values: Any, dtype: torch.dtype) -> Any:
    """Freezes the base. An adapter has no effect at first: its second matrix starts as zeros."""
    settings = LoraConfig(
        task_type="CAUSAL_LM",
        r=values.rank,
        lora_alpha=values.alpha,
        lora_dropout=values.dropout,
        target_modules=list(values.targets),
        bias="none",
    )
    model = get_peft_model(base, settings, autocast_adapter_dtype=False)
    cast(trainable(model), dtype)
    return model


def cast(parameters: Iterable[torch.nn.Parameter], dtype: torch.dtype) -> None:
    """Casts parameters only: `Module.to` would round the rotary frequencies, which are buffers, as well."""
    for parameter in parameters:
        parameter.data = parameter.data.to(dtype)


def trainable(model: Any) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def matmul_parameters(values: Any) -> int:
    """Weights of the matrix products, the output layer included."""
    keys_and_values = 2 * values.width * (values.width // values.heads) * values.kv_heads
    layer = 2 * values.width**2 + keys_and_values + 3 * values.width * values.ffn
    return int(values.layers * layer + values.width * values.vocabulary)


# --- folders --------------------------------------------------------------------------------------------------------


def load_base(folder: Path, num_layers: int, dtype: torch.dtype, device: str) -> Any:
    """Loads onto the device shard by shard, so that the host never holds the whole model. Takes the first layers if the
    folder has more; refuses any other weight that is missing, unknown or of another shape."""
    config = read_config(folder)
    config.num_hidden_layers = num_layers
    try:
        model, report = LlamaForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, device_map={"": device}, output_loading_info=True, local_files_only=True
        )
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise BadInput(f"cannot read {folder}: {str(error).splitlines()[0]}; {GET_CHECKPOINT}") from None
    tied = config.tie_word_embeddings
    wrong = [*report["missing_keys"], *(n for n in report["unexpected_keys"] if is_used(n, num_layers, tied=tied))]
    if wrong:
        raise BadInput(f"{folder} does not fit the model of this run: {wrong[0]}; {GET_CHECKPOINT}")
    return model


def read_config(folder: Path) -> LlamaConfig:
    try:
        return LlamaConfig.from_pretrained(folder)
    except Exception as error:  # noqa: BLE001  transformers raises what its version happens to raise
        raise BadInput(f"cannot read {folder / 'config.json'}: {short_reason(error)}; {GET_CHECKPOINT}") from None


def save_merged(model: Any, folder: Path, tokenizer_folder: Path | None) -> None:
    """Merges the adapters into the base, and writes a folder that transformers and this case can read."""
    model.merge_and_unload().save_pretrained(folder)
    for name in ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"):
        if tokenizer_folder is not None and (tokenizer_folder / name).is_file():
            shutil.copyfile(tokenizer_folder / name, folder / name)

"""Values that make no sense, or do not go together, are refused before a worker starts; published configurations."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness, Changes

from flagperf.errors import BadInput
from flagperf.plan.settings import find_tuning
from flagperf.spec.values import Layer, flatten, resolve

PLUGINS = Path(__file__).parents[2] / "plugins"

OUT_OF_LIMITS = [
    ("distilbert", "training.optimizer", "lamb"),
    ("distilbert", "data.source", "imdb"),
    ("distilbert", "model.dropout", 1.0),
    ("distilbert", "evaluation.target", 1.5),
    ("glm", "model.logits", "none"),
    ("glm", "evaluation.every_samples", 0),
    ("glm", "training.max_samples", 0),
    ("llama2_7b_finetune", "evaluation.subjects", 58),
    ("llama2_7b_finetune", "evaluation.shots", 6),
    ("llama2_7b_finetune", "lora.rank", 0),
    ("llama2_7b_finetune", "training.decay", 0.0),
]


@pytest.mark.parametrize(("case", "key", "value"), OUT_OF_LIMITS)
def test_values_beyond_the_limits_of_case_toml_are_refused(case: str, key: str, value: object) -> None:
    with pytest.raises(BadInput, match=key):
        CaseHarness(case).values(**{key.replace(".", "__"): value})


REFUSED: list[tuple[str, Changes, str]] = [
    ("distilbert", {"model__heads": 7}, "model.width=64 is not divisible by model.heads=7"),
    ("distilbert", {"data__eval_rows": 0}, "data.eval_rows"),
    ("glm", {"model__heads": 5}, "model.width=64 is not divisible by model.heads=5"),
    ("glm", {"data__rows": 0}, "data.rows"),
    ("glm", {"model__vocabulary": 20}, "needs model.vocabulary=32, and it is 20"),
    ("glm", {"model__sequence": 32}, "needs model.sequence=33, and it is 32"),
    ("glm", {"training__schedule_steps": 3, "training__accumulate": 4}, "training.schedule_steps=3"),
    ("llama2_7b_finetune", {"model__heads": 3}, "model.width=64 is not divisible by model.heads=3"),
    ("llama2_7b_finetune", {"model__kv_heads": 3}, "model.heads=4 is not divisible by model.kv_heads=3"),
    ("llama2_7b_finetune", {"model__heads": 64, "model__kv_heads": 64}, "model.width / model.heads = 1 is odd"),
    ("llama2_7b_finetune", {"model__sequence": 5000}, "model.sequence=5000 is more than model.positions="),
    ("llama2_7b_finetune", {"lora__targets": []}, "lora.targets is empty"),
    ("llama2_7b_finetune", {"lora__targets": ["q_proj", "v_porj"]}, "unknown layer 'v_porj'; did you mean v_proj"),
    ("llama2_7b_finetune", {"model__save_to": f"{__file__}/merged"}, f"cannot be created in {__file__}"),
    ("llama2_7b_finetune", {"model__save_to": "merged"}, "model.save_to=merged is relative"),
    ("llama2_7b_finetune", {"model__save_to": "/"}, "model.save_to=/ already exists"),
    ("llama2_7b_finetune", {"data__eval_rows": 0}, "data.eval_rows"),
    ("llama2_7b_finetune", {"evaluation__subjects": 57}, "synthetic has 2 subjects"),
    ("llama2_7b_finetune", {"evaluation__questions": 0}, "evaluation.questions"),
    ("llama2_7b_finetune", {"model__vocabulary": 20}, "more than model.vocabulary=20"),
    ("llama2_70b", {"parallel__tp": 4}, "parallel.tp=4 does not divide model.kv_heads=2"),
    ("llama2_70b", {"parallel__tp": 2, "model__sequence": 33}, "parallel.tp=2 does not divide model.sequence=33"),
    ("llama2_70b", {"parallel__pp": 4, "parallel__tp": 1}, "4 stages need a layer each, and model.layers is 2"),
    ("llama2_70b", {"parallel__pp": 2, "training__accumulate": 1}, "2 micro-batches per step; training.accumulate is"),
    ("llama2_70b", {"parallel__pp": 2, "parallel__stages": [1, 1, 1]}, "lists 3 stages, and parallel.pp is 2"),
    ("llama2_70b", {"parallel__pp": 2, "parallel__stages": [2, 1]}, "has 3 layers in all, and model.layers is 2"),
    ("llama2_70b", {"parallel__pp": 2, "parallel__stages": [2, 0]}, "each at least 1"),
    ("llama2_70b", {"model__heads": 3}, "model.heads=3 does not divide model.width=64"),
    ("aquila_33b", {"parallel__tp": 2, "parallel__dp": 2}, "use --parallel TP4PP1DP1"),
    ("aquila_33b", {"parallel__tp": 4, "inference__multiple": 6}, "tp=4 does not divide inference.multiple=6"),
    ("aquila_33b", {"parallel__tp": 4, "inference__pad_to": 32}, "inference.pad_to=32 is below model.sequence=64"),
    ("aquila_33b", {"parallel__tp": 4, "data__samples": 0}, "generates data.samples samples, and that is 0"),
    ("gemm", {"gemm__headline": "8192x8192"}, "gemm: '8192x8192' is not a shape"),
    ("gemm", {"gemm__shapes": ["1x1x1", "1x1x-1"]}, "gemm: '1x1x-1' is not a shape"),
    ("gemm", {"gemm__tuned_shapes": ["99999999x1x1"]}, "gemm: '99999999x1x1' is not a shape"),
    ("gemm", {"gemm__precisions": []}, "gemm.precisions is empty"),
    ("gemm", {"gemm__precisions": ["fp61"]}, "unknown precision of gemm 'fp61'; did you mean fp6"),
    ("host_to_device", {"host_to_device__directions": ["h2h"]}, "unknown value of host_to_device.directions 'h2h'"),
    ("host_to_device", {"host_to_device__memories": []}, "host_to_device.memories is empty"),
    ("host_to_device", {"host_to_device__sizes": ["-4B"]}, "host_to_device.sizes: '-4B' is not a size"),
    ("memory_bandwidth", {"memory_bandwidth__patterns": ["raed"]}, "unknown pattern of memory_bandwidth 'raed'"),
    ("memory_bandwidth", {"memory_bandwidth__sizes": ["4KiB", "9B"]}, "memory_bandwidth.sizes: '9B' is not a size"),
    ("memory_bandwidth", {"memory_bandwidth__headline": "4098"}, "memory_bandwidth.headline: '4098' is not a size"),
    ("memory_capacity", {"memory_capacity__limit_bytes": 4096}, "less than the smallest chunk"),
    ("peer_to_peer", {"peer_to_peer__sizes": ["1 MB"]}, "peer_to_peer.sizes: '1 MB' is not a size"),
    ("collectives", {"collectives__operations": ["all_reduze"]}, "'all_reduze'; did you mean all_reduce"),
    ("collectives", {"collectives__precisions": ["fp8"]}, "fp8"),
    ("collectives", {"collectives__sizes": ["2048GiB"]}, "collectives.sizes: '2048GiB' is not a size"),
    ("collectives", {"collectives__sizes": ["4B"]}, "from 8B to 1024GiB"),
    ("operators", {"operators__only": ["sofmax"]}, "unknown operator 'sofmax'; did you mean softmax"),
    ("operators", {"operators__only": [3]}, "unknown operator '3'"),
    ("operators", {"operators__shapes": ["modle"]}, "unknown class of shapes 'modle'; did you mean model"),
    ("operators", {"operators__dtypes": ["fp23"]}, "unknown dtype 'fp23'; did you mean fp32"),
    ("operators", {"operators__directions": ["back"]}, "did you mean backward"),
    ("operators", {"operators__caches": ["hot"]}, "unknown cache 'hot'; "),
    ("operators", {"operators__libraries": []}, "operators.libraries is empty: nothing would be measured; "),
    (
        "operators",
        {"operators__only": ["mm"], "operators__dtypes": ["int8"]},
        "no operator has a row with operators.only=['mm']",
    ),
]


@pytest.mark.parametrize(("case", "changes", "words"), REFUSED)
def test_values_that_cannot_be_run_are_refused_with_what_to_do(case: str, changes: Changes, words: str) -> None:
    devices = 4 if case in ("aquila_33b", "llama2_70b") else 1
    values = CaseHarness(case).values(devices=devices, **changes)
    with pytest.raises(BadInput) as caught:
        import_module(f"flagperf_cases.{case}.data").check_files(None, values)
    assert words in str(caught.value) and ";" in str(caught.value)


PUBLISHED: dict[str, Changes] = {
    "distilbert": {
        "training.batch_size": 32, "training.learning_rate": 5e-5, "training.epochs": 10, "evaluation.target": 0.91,
    },
    "glm": {
        "training.batch_size": 8, "training.learning_rate": 1e-5, "training.max_samples": 5_553_080,
        "training.weight_decay": 0.1, "training.clip": 1.0, "evaluation.target": 0.8,
    },
    "llama2_7b_finetune": {
        "training.batch_size": 1, "training.learning_rate": 1e-4, "training.epochs": 3, "training.decay": 0.85,
        "lora.rank": 8, "lora.alpha": 32, "lora.dropout": 0.05, "lora.targets": ["q_proj", "v_proj"],
        "model.sequence": 512, "evaluation.subjects": 57, "evaluation.shots": 5, "evaluation.target": 0.4,
    },
    "memory_bandwidth": {"memory_bandwidth.headline": "1GiB", "memory_bandwidth.headline_caches": 16},
}  # fmt: skip


@pytest.mark.parametrize("case", PUBLISHED)
def test_standard_is_the_published_configuration(case: str) -> None:
    found = dict(flatten(CaseHarness(case).values("standard")))
    assert {key: found[key] for key in PUBLISHED[case]} == PUBLISHED[case]


BATCH, RATE, SAMPLES = "training.batch_size", "training.learning_rate", "training.max_samples"


@pytest.mark.parametrize(
    ("case", "vendor", "model", "shape", "values"),
    [
        ("glm", "nvidia", "A100-SXM4-40GB", (1, 1), {"precision": "fp16", BATCH: 16, SAMPLES: 24_135}),
        ("glm", "nvidia", "A100-SXM4-40GB", (2, 8), {"precision": "fp16", BATCH: 8, RATE: 1e-5, SAMPLES: 5_553_080}),
        ("glm", "nvidia", "A100-SXM4-80GB", (1, 8), None),
        ("glm", "metax", "C500", (2, 8), {"precision": "fp16", BATCH: 16, RATE: 2e-5, "training.seed": 10483}),
        ("glm", "metax", "C500", (4, 8), None),
        ("glm", "hygon", "K100", (1, 8), {"precision": "fp16", BATCH: 8, SAMPLES: 5_553_080}),
        ("glm", "kunlun", "R300", (1, 8), {"precision": "fp32", BATCH: 5, "training.seed": 4096}),
        ("llama2_7b_finetune", "nvidia", "A100-SXM4-40GB", (1, 1), {"precision": "fp32", BATCH: 2, RATE: 1e-4}),
        ("llama2_7b_finetune", "metax", "C500", (1, 1), {"precision": "fp16", BATCH: 4, RATE: 1e-6}),
        ("llama2_7b_finetune", "metax", "C500", (1, 8), None),
        ("llama2_70b", "nvidia", "NVIDIA H800", (4, 8), {"precision": "amp-bf16", "parallel.tp": 8, "parallel.pp": 4}),
        ("llama2_70b", "metax", "C500", (4, 8), {"precision": "amp-bf16", "parallel.tp": 4, "parallel.pp": 8}),
        ("llama2_70b", "kunlun", "R300", (10, 8), {"precision": "fp32", "parallel.tp": 8, "parallel.pp": 10}),
        ("aquila_33b", "nvidia", "A100-SXM4-40GB", (1, 8), {"parallel.tp": 8, "parallel.pp": 1, "parallel.dp": 1}),
    ],
)
def test_vendors_tune_the_rows_that_they_have_published(
    case: str, vendor: str, model: str, shape: tuple[int, int], values: dict[str, Any] | None
) -> None:
    tuning = find_tuning(PLUGINS / vendor / f"src/flagperf_{vendor}/tuning", case, model, *shape, "standard")
    assert (tuning is None) == (values is None)
    if tuning is not None and values is not None:
        manifest = CaseHarness(case).manifest()
        layers = [Layer("standard", manifest.profiles["standard"].values), Layer("tuning", tuning.values, "vendor")]
        found = dict(flatten(resolve(manifest, layers).values))
        assert {key: found[key] for key in values} == values

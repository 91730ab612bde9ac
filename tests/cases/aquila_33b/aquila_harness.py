"""Values and files of aquila_33b for its tests, and the case run on the CPU without launcher and agent.

As a script: FOLDER RANK WORLD_SIZE; reads FOLDER/runs.json, a list of changes with a data folder each, runs the case
once for each in one process group, and leaves the reports in FOLDER/<rank>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from flagperf.api import Device, precision
from flagperf.builtin.cpu import CpuBackend
from flagperf.events import Event, Reported, StepFinished
from flagperf.plan.parallel import fit_layout
from flagperf.spec import RunSpec
from flagperf.spec.manifest import Manifest, read_manifest
from flagperf.spec.values import Layer, nest, resolve
from flagperf_cases import flagperf_cases
from flagperf_cases.decoder.shape import DecoderShape

SECONDS = 600
DATA = Path(os.environ.get("FLAGPERF_TEST_DATA", Path(__file__).parents[3].parent / "shared" / "data"))
SMALL = DecoderShape(layers=2, width=32, heads=8, kv_heads=4, ffn=48, vocabulary=60, sequence=64)
SMALL_CHANGES = {f"model__{name}": getattr(SMALL, name) for name in ("width", "heads", "kv_heads", "ffn", "vocabulary")}


def manifest() -> Manifest:
    return next(read_manifest(case.manifest) for case in flagperf_cases() if case.manifest.parent.name == "aquila_33b")


def values(profile: str = "tiny", devices: int = 1, **changes: Any) -> dict[str, Any]:
    """The resolved values of a profile. A key is written with two underscores for the dot: model__seed=1."""
    found = manifest()
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    layers = [Layer("profile", found.profiles[profile].values), Layer("test", nest(dotted), is_deviation=True)]
    return fit_layout(resolve(found, layers), RunSpec("aquila_33b", devices=devices)).values


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, *events: Event) -> None:
        self.events += events


def run_case(config: dict[str, Any], data_dir: Path | None = None, rank: int = 0, world_size: int = 1) -> list[Event]:
    from flagperf.worker.context import Context
    from flagperf_cases.aquila_33b.case import run

    backend, recorder = CpuBackend(), Recorder()
    activation = backend.activate(rank, 1, [Device(f"cpu:{slot}", "CPU", "CPU", slot) for slot in range(world_size)])
    context = Context(
        backend=backend, activation=activation, precision=precision(config["precision"]), config=config,
        sink=recorder, rank=rank, world_size=world_size, data_dir=data_dir,
    )  # fmt: skip
    run(context)
    return recorder.events


def run_ranks(folder: Path, world_size: int, runs: list[tuple[dict[str, Any], str]]) -> list[list[dict[str, float]]]:
    """What each rank reported of each run, by rank: processes that each do all the runs."""
    folder.mkdir()
    (folder / "runs.json").write_text(json.dumps(runs))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen([sys.executable, __file__, str(folder), str(rank), str(world_size)], env=environment)
        for rank in range(world_size)
    ]
    try:
        codes = [process.wait(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * world_size
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world_size)]


def report(events: list[Event]) -> dict[str, float]:
    (found,) = [event.values for event in events if isinstance(event, Reported)]
    return found


def steps(events: list[Event]) -> list[StepFinished]:
    return [event for event in events if isinstance(event, StepFinished)]


def small_model() -> Any:
    import torch

    from flagperf_cases.decoder.model import Decoder

    torch.manual_seed(7)
    model = Decoder(SMALL)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


class OfAnotherProgram:
    """A class that the reader of a checkpoint cannot import."""


def write_megatron(folder: Path, model: Any, ways: int, padded_vocabulary: int) -> None:
    """A decoder as Megatron's shards, with what a real one has beside the weights."""
    import torch

    home = folder / "ckpts/iter_0135000"
    home.mkdir(parents=True)
    (folder / "ckpts/latest_checkpointed_iteration.txt").write_text("135000\n")
    weights = {name: value.detach() for name, value in model.named_parameters()}
    OfAnotherProgram.__module__ = "program_that_is_not_here"
    sys.modules["program_that_is_not_here"] = module = type(sys)("program_that_is_not_here")
    module.OfAnotherProgram = OfAnotherProgram  # type: ignore[attr-defined]
    try:
        for rank in range(ways):
            content = {
                "args": argparse.Namespace(lr=1e-4, kind=OfAnotherProgram()),
                "checkpoint_version": 3.0,
                "iteration": 135000,
                "model": {"language_model": _shard(model.shape, weights, rank, ways, padded_vocabulary)},
                "optimizer": {"state": {0: torch.ones(3)}},
                "rng_state": [{"random": (3, (1, 2), None), "torch": torch.get_rng_state()}],
            }
            (home / f"mp_rank_{rank:02d}").mkdir()
            torch.save(content, home / f"mp_rank_{rank:02d}/model_optim_rng.pt")
    finally:
        del sys.modules["program_that_is_not_here"]


def _shard(shape: DecoderShape, weights: dict[str, Any], rank: int, ways: int, padded: int) -> dict[str, Any]:
    import torch

    def rows(table: Any) -> Any:
        more = table[-1:].expand(padded - len(table), -1)
        return torch.cat([table, more]).chunk(ways)[rank].clone()

    encoder = {"final_layernorm.weight": weights["norm.weight"]}
    for layer in range(shape.layers):
        own, prefix = f"layers.{layer}.", f"layers.{layer}."
        heads = [
            weights[f"{own}self_attn.{part}_proj.weight"].view(shape.kv_heads, -1, shape.head_size, shape.width)
            for part in "qkv"
        ]
        qkv = torch.cat(heads, 1).chunk(ways)[rank].flatten(0, 2)
        gate, up = (weights[f"{own}mlp.{part}_proj.weight"].chunk(ways)[rank] for part in ("gate", "up"))
        encoder |= {
            f"{prefix}input_layernorm.weight": weights[f"{own}input_layernorm.weight"],
            f"{prefix}post_attention_layernorm.weight": weights[f"{own}post_attention_layernorm.weight"],
            f"{prefix}self_attention.query_key_value.weight": qkv.clone(),
            f"{prefix}self_attention.dense.weight": weights[f"{own}self_attn.o_proj.weight"]
            .chunk(ways, 1)[rank]
            .clone(),
            f"{prefix}mlp.dense_h_to_4h.weight": torch.cat([gate, up]),
            f"{prefix}mlp.dense_4h_to_h.weight": weights[f"{own}mlp.down_proj.weight"].chunk(ways, 1)[rank].clone(),
        }
    return {
        "embedding": {"word_embeddings": {"weight": rows(weights["embed_tokens.weight"])}},
        "encoder": encoder,
        "output_layer": {"weight": rows(weights["lm_head.weight"])},
    }


def main(folder: Path, rank: int, world_size: int) -> None:
    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    reports = [
        report(run_case(values(devices=world_size, **changes), Path(data_dir), rank, world_size))
        for changes, data_dir in json.loads((folder / "runs.json").read_text())
    ]
    (folder / f"{rank}.json").write_text(json.dumps(reports))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)  # as a worker ends: native threads may abort the interpreter's own end

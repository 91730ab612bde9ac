"""Values and files of llama2_70b for its tests, and the case run on the CPU without launcher and agent.

As a script: FOLDER RANK WORLD_SIZE; reads FOLDER/changes.json, a list of changes, runs the case once for each in one
process group, and leaves the events in FOLDER/<rank>.json.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import Device, precision
from flagperf.builtin.cpu import CpuBackend
from flagperf.events import AnyEvent, Event, Reported, StepFinished
from flagperf.plan.parallel import fit_layout
from flagperf.spec import RunSpec
from flagperf.spec.manifest import Manifest, read_manifest
from flagperf.spec.values import Layer, nest, resolve
from flagperf_cases import flagperf_cases

SECONDS = 900


def manifest() -> Manifest:
    return next(read_manifest(case.manifest) for case in flagperf_cases() if case.manifest.parent.name == "llama2_70b")


def values(profile: str = "tiny", devices: int = 1, **changes: Any) -> dict[str, Any]:
    """The resolved values of a profile. A key is written with two underscores for the dot: training__seed=1."""
    found = manifest()
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    layers = [Layer("profile", found.profiles[profile].values), Layer("test", nest(dotted), is_deviation=True)]
    return fit_layout(resolve(found, layers), RunSpec("llama2_70b", devices=devices)).values


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, *events: Event) -> None:
        self.events += events


def run_case(config: dict[str, Any], data_dir: Path | None = None, rank: int = 0, world_size: int = 1) -> list[Event]:
    from flagperf.worker.context import Context
    from flagperf_cases.llama2_70b.case import run

    backend, recorder = CpuBackend(), Recorder()
    activation = backend.activate(rank, 1, [Device(f"cpu:{slot}", "CPU", "CPU", slot) for slot in range(world_size)])
    context = Context(
        backend=backend, activation=activation, precision=precision(config["precision"]), config=config,
        sink=recorder, rank=rank, world_size=world_size, data_dir=data_dir,
    )  # fmt: skip
    run(context)
    return recorder.events


def run_ranks(folder: Path, world_size: int, runs: list[dict[str, Any]]) -> list[list[list[Event]]]:
    """Events by run and rank, of processes that each do all the runs."""
    folder.mkdir()
    (folder / "changes.json").write_text(json.dumps(runs))
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
    ranks = [
        msgspec.json.decode((folder / f"{rank}.json").read_bytes(), type=list[list[AnyEvent]])
        for rank in range(world_size)
    ]
    return [list(by_rank) for by_rank in zip(*ranks, strict=True)]


def steps(events: list[Event]) -> list[StepFinished]:
    return [event for event in events if isinstance(event, StepFinished)]


def reports(events: list[Event]) -> list[dict[str, float]]:
    return [event.values for event in events if isinstance(event, Reported)]


def write_indexed(prefix: Path, documents: Sequence[Sequence[int]], *, version: int = 1, code: int = 8) -> None:
    lengths = [len(document) for document in documents]
    offsets = [2 * sum(lengths[:number]) for number in range(len(documents))]
    prefix.with_name(prefix.name + ".bin").write_bytes(
        b"".join(struct.pack(f"<{len(document)}H", *document) for document in documents)
    )
    prefix.with_name(prefix.name + ".idx").write_bytes(
        struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", version, code, len(documents), len(documents) + 1)
        + struct.pack(f"<{len(documents)}i", *lengths)
        + struct.pack(f"<{len(documents)}q", *offsets)
        + struct.pack(f"<{len(documents) + 1}q", *range(len(documents) + 1))
    )


def main(folder: Path, rank: int, world_size: int) -> None:
    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    runs = [
        run_case(values(devices=world_size, **changes), rank=rank, world_size=world_size)
        for changes in json.loads((folder / "changes.json").read_text())
    ]
    (folder / f"{rank}.json").write_bytes(msgspec.json.encode(runs))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)  # as a worker ends: native threads may abort the interpreter's own end

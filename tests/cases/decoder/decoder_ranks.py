"""One rank of the decoder's tests. As a script: FOLDER RANK WORLD_SIZE; does every item of FOLDER/work.json in one
process group and leaves the answers in FOLDER/<rank>.pt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from flagperf_cases.decoder.shape import DecoderShape, Layout

SECONDS = 300
NUM_STEPS = 10
MICRO_BATCH, GLOBAL_BATCH = 1, 4
SEED = 7

Work = dict[str, Any]
"""{"shape": {...}, "layout": {...}, "clip": 0.1, ...}"""


def run_ranks(folder: Path, world_size: int, work: list[Work]) -> list[list[dict[str, Any]]]:
    """Answers by item and rank."""
    import torch

    folder.mkdir()
    (folder / "work.json").write_text(json.dumps(work))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    logs = [(folder / f"{rank}.log").open("w") for rank in range(world_size)]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), str(rank), str(world_size)],
            env=environment, stdout=log, stderr=subprocess.STDOUT,
        )
        for rank, log in enumerate(logs)
    ]  # fmt: skip
    try:
        codes = [process.wait(timeout=SECONDS) for process in processes]
    finally:
        for process, log in zip(processes, logs, strict=True):
            process.kill()
            process.wait()
            log.close()
    assert codes == [0] * world_size, "\n".join((folder / f"{rank}.log").read_text()[-3000:] for rank in (0, 1))
    ranks = [torch.load(folder / f"{rank}.pt") for rank in range(world_size)]
    return [list(answers) for answers in zip(*ranks, strict=True)]


def train(work: Work) -> dict[str, Any]:
    """Ten steps of SGD on the same global batches whatever the layout is."""
    import torch

    from flagperf_cases.decoder.gradients import clip, total_norm
    from flagperf_cases.decoder.parallel import Trainer, build_model, find_place, full_parameters

    shape, layout = DecoderShape(**work["shape"]), Layout(**work["layout"])
    place = find_place(layout, "cpu")
    autocast = torch.bfloat16 if work.get("bf16") else None
    model = build_model(
        shape, place, device="cpu", seed=SEED, std=0.2, recompute=work.get("recompute", False), autocast=autocast
    )
    initial = [(name, value.clone()) for name, value in full_parameters(model)]
    num_micro_batches = GLOBAL_BATCH // MICRO_BATCH // layout.dp
    trainer = Trainer(model, place, micro_batch=MICRO_BATCH, num_micro_batches=num_micro_batches, device="cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses, norms = [], []
    for step in range(NUM_STEPS):
        mine = batch(shape, step)[place.dp_rank :: layout.dp]
        loss = trainer.backward(mine[:, :-1].contiguous(), mine[:, 1:].contiguous())
        norm = total_norm(model, place)
        clip(model, norm, work["clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(None if loss is None else float(loss))
        norms.append(float(norm))
    return {
        "losses": losses, "norms": norms, "initial": initial, "dp_rank": place.dp_rank,
        "final": [(name, value.clone()) for name, value in full_parameters(model)],
    }  # fmt: skip


def batch(shape: DecoderShape, step: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(0, shape.vocabulary, (GLOBAL_BATCH, shape.sequence + 1), generator=generator)


def main(folder: Path, rank: int, world_size: int) -> None:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    answers = [train(work) for work in json.loads((folder / "work.json").read_text())]
    torch.save(answers, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

"""Every case with steps in every precision, on the CPU and on the device, in one process per rank:
`python device_matrix.py OUT`.

Writes what each run reported: {"cpu": {"glm fp32": {"losses": [...], ...}}, "nova": {...}}. RANK and WORLD_SIZE say
which rank this is; MASTER_ADDR and MASTER_PORT where the others are.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
STEPS = 2
NOT_ON_CPU = ("tf32", "amp-fp16")
"""Both are float32 there."""
NO_DROPOUT = {"model__dropout": 0.0, "model__attention_dropout": 0.0, "model__classifier_dropout": 0.0}
"""torch drops out by another operator on devices, with other random numbers."""
CHANGES: dict[str, dict[str, Any]] = {
    "distilbert": {"training__max_steps": STEPS, "evaluation__max_rows": 40, **NO_DROPOUT},
    "glm": {"training__max_steps": STEPS, "evaluation__max_rows": 4},
    "llama2_7b_finetune": {
        "training__max_steps": STEPS,
        "evaluation__max_rows": 4,
        "evaluation__questions": 4,
        "data__rows": 20,
    },
    "llama2_70b": {"training__max_steps": STEPS},
    "aquila_33b": {"data__samples": 12},
}


def main(out: Path) -> None:
    found: dict[str, Any] = {}
    for name in ("cpu", "nova"):
        found[name] = _runs_on(name)
    out.write_text(json.dumps(found))


def _runs_on(name: str) -> dict[str, Any]:
    import torch
    from flagperf_nova import NovaBackend

    from flagperf.builtin.cpu import CpuBackend

    backend = CpuBackend() if name == "cpu" else NovaBackend()
    if name == "nova":
        import torch_nova  # noqa: F401
    if WORLD_SIZE > 1:
        torch.distributed.init_process_group(backend.collective_backend)
    runs = {
        f"{case} {precision}": _outcome(case, precision, backend)
        for case in CHANGES
        for precision in _harness(case).manifest().precisions
    }
    if torch.distributed.is_initialized():  # by us, or by accelerate
        torch.distributed.destroy_process_group()
    return runs


def _outcome(case: str, precision: str, backend: Any) -> dict[str, Any]:
    if backend.torch_type == "cpu" and precision in NOT_ON_CPU:
        return {}
    try:
        return _run(case, precision, backend)
    except Exception:  # noqa: BLE001
        return {"error": traceback.format_exc()}


def _run(case: str, precision: str, backend: Any) -> dict[str, Any]:
    from case_harness import reported, steps

    harness = _harness(case)
    config = harness.values(devices=WORLD_SIZE, precision=precision, **CHANGES[case])
    with counted_waits(backend) as waits:
        events = harness.run(config, None, RANK, WORLD_SIZE, backend)
    losses = [step.loss for step in steps(events) if step.loss is not None]  # some ranks of a model have none
    return {"losses": losses, "reported": reported(events), "waits": waits}


def _harness(case: str) -> Any:
    from case_harness import CaseHarness

    return CaseHarness(case)


class counted_waits:
    """How often the host waited for the device inside each step."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._waits: list[int] = []

    def __enter__(self) -> list[int]:
        from flagperf.worker.step_timing import Step

        self._original = Step.__enter__, Step.__exit__
        if self._backend.torch_type == "cpu":
            return self._waits
        import torch

        enter, leave = self._original
        began = 0

        def counted_enter(step: Step) -> Step:
            nonlocal began
            entered = enter(step)
            began = torch.nova.num_synchronizations()
            return entered

        def counted_exit(step: Step, *error: Any) -> None:
            self._waits.append(torch.nova.num_synchronizations() - began)
            leave(step, *error)

        Step.__enter__, Step.__exit__ = counted_enter, counted_exit  # type: ignore[method-assign]
        return self._waits

    def __exit__(self, *_: object) -> None:
        from flagperf.worker.step_timing import Step

        Step.__enter__, Step.__exit__ = self._original  # type: ignore[method-assign]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # like a worker: native threads may abort the interpreter's own shutdown

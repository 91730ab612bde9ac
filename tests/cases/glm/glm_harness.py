"""glm on the CPU, without launcher and agent, and its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from case_harness import CaseHarness

_case = CaseHarness("glm")
manifest, values, run_case, run_ranks = _case.manifest, _case.values, _case.run, _case.run_ranks


def save_checkpoint(folder: Path, content: Any, *, legacy: bool = False) -> None:
    """In the layout of the published one; `legacy` as torch before 1.6 wrote files."""
    import torch

    (folder / "200000").mkdir(parents=True, exist_ok=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("200000\n")
    torch.save(content, folder / "200000/mp_rank_00_model_states.pt", _use_new_zipfile_serialization=not legacy)

"""Checkpoints in the layout of the published one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def save_checkpoint(folder: Path, content: Any, *, legacy: bool = False) -> None:
    """`legacy` writes the file format of torch before 1.6."""
    (folder / "200000").mkdir(parents=True, exist_ok=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("200000\n")
    torch.save(content, folder / "200000/mp_rank_00_model_states.pt", _use_new_zipfile_serialization=not legacy)

"""Paths of all files in a bundle, relative to its folder. Messages quote them in this form."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

NodeProcess = Literal["launcher", "probe", "agent"]

RUN_FILE = Path("run.json")
ENVIRONMENT_FILE = Path("environment.json")
MANIFEST_FILE = Path("MANIFEST")
SIGNATURE_FILE = Path("MANIFEST.sig")

EVENTS, SAMPLES, LOGS = Path("events"), Path("samples"), Path("logs")
FOLDERS = (EVENTS, SAMPLES, LOGS)

PARENT_EVENTS = EVENTS / "parent.jsonl"
ALL_RANK_EVENTS = EVENTS / "rank-*.jsonl"
ALL_NODE_SAMPLES = SAMPLES / "node-*.jsonl"


def rank_events(rank: int) -> Path:
    return EVENTS / f"rank-{rank:05d}.jsonl"


def node_samples(node_index: int) -> Path:
    return SAMPLES / f"node-{node_index:03d}.jsonl"


def rank_log(rank: int) -> Path:
    return LOGS / f"rank-{rank:05d}.log"


def node_log(process: NodeProcess, node_index: int) -> Path:
    """What a node's launcher, probe or agent printed. The launcher's file is named after the node."""
    return LOGS / f"{'node' if process == 'launcher' else process}-{node_index:03d}.log"

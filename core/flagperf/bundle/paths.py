"""Paths of all files in a bundle, relative to its folder. Messages quote them in this form."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

NodeProcess = Literal["launcher", "probe", "agent"]

RUN_FILE = Path("run.json")
ENVIRONMENT_FILE = Path("environment.json")
MANIFEST_FILE = Path("MANIFEST")
SIGNATURE_FILE = Path("MANIFEST.sig")
OPERATORS_FILE = Path("operators.json")
LABELS_FILE = Path("labels.json")
REDACTION_FILE = Path("redaction.json")
BUNDLE_FILES = (
    RUN_FILE,
    ENVIRONMENT_FILE,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    OPERATORS_FILE,
    LABELS_FILE,
    REDACTION_FILE,
)
"""All files of a bundle that are not in one of its folders."""

EVENTS, SAMPLES, LOGS = Path("events"), Path("samples"), Path("logs")
FOLDERS = (EVENTS, SAMPLES, LOGS)

PARENT_EVENTS = EVENTS / "parent.jsonl"
ALL_RANK_EVENTS = EVENTS / "rank-*.jsonl"
ALL_NODE_SAMPLES = SAMPLES / "node-*.jsonl"

DETACHED, DETACHED_RUN, DETACHED_END = Path("detached"), Path("begun.json"), Path("finished.json")
"""Beside the bundles: a folder for each run that was put into a queue. In it, the id of the run, and its exit code."""


def rank_events(rank: int) -> Path:
    return EVENTS / f"rank-{rank:05d}.jsonl"


def rank_operators(rank: int) -> Path:
    """Return the path of what a rank recorded. At the end of a run, OPERATORS_FILE replaces the files of all ranks."""
    return EVENTS / f"operators-{rank:05d}.json"


def node_samples(node_index: int) -> Path:
    return SAMPLES / f"node-{node_index:03d}.jsonl"


def rank_log(rank: int) -> Path:
    return LOGS / f"rank-{rank:05d}.log"


def node_log(process: NodeProcess, node_index: int) -> Path:
    """Return the path of a log of a launcher, probe or agent. The launcher's file is named after the node."""
    return LOGS / f"{'node' if process == 'launcher' else process}-{node_index:03d}.log"


_ALL_FILES = re.compile(
    r"run\.json|environment\.json|MANIFEST|MANIFEST\.sig|operators\.json|labels\.json|redaction\.json"
    r"|events/parent\.jsonl|events/rank-[0-9]{5,9}\.jsonl|events/operators-[0-9]{5,9}\.json"
    r"|samples/node-[0-9]{3,9}\.jsonl|logs/(rank|node|probe|agent)-[0-9]{3,9}\.log"
)


def is_bundle_file(name: str) -> bool:
    """Return True if a bundle may have a file of this name, relative to its folder."""
    return _ALL_FILES.fullmatch(name) is not None

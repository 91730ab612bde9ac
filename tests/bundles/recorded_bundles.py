"""The recorded bundles, by the names that record.py gives them."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / "v1"
IDS: dict[str, str] = json.loads((HERE / "v1.json").read_text())
"""Name -> id of the run."""


def recorded_bundle(name: str) -> Path:
    return FOLDER / IDS[name]

"""Light: `flagperf plan` asks this in an agent, without torch."""

import hashlib
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput


def check_files(data_dir: Path | None, values: dict[str, Any]) -> list[DataFile]:
    if values["data"]["source"] == "made":
        return []
    path = (data_dir or Path()) / "toys.txt"
    if not path.exists():
        raise BadInput(f"{path} is missing: write one toy per line into it")
    content = path.read_bytes()
    return [DataFile("toys.txt", len(content), hashlib.sha256(content).hexdigest())]

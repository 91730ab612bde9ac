"""Reference material that is not part of a package: outputs of real tools, published tables. Tests read it from a
folder `shared` beside the repository or above it, and are skipped where there is none."""

from __future__ import annotations

import os
from pathlib import Path


def shared_file(beside: str, path: str) -> Path:
    """`beside` is the test's own `__file__`. With CI=true a file that is missing from a folder that is there is a
    failure: a renamed file must not turn tests off."""
    import pytest  # not at the top: this package is imported without it as well

    folders = [folder / "shared" for folder in Path(beside).absolute().parents]
    found = next((folder for folder in folders if (folder / "transcripts").is_dir()), None)
    if found is None:
        pytest.skip(f"no folder `shared` with {path} beside this repository")
    if not (found / path).exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{found / path} is not there")
    return found / path

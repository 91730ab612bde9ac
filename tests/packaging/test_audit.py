"""`make audit`: what it asks the service about. Its answer is nothing that a test can hold."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READY = (".venv/.dev", ".venv-dist/.ready", ".venv-docs/.ready")


def test_every_pin_of_the_constraints_is_audited() -> None:
    lacking = [name for name in READY if not (ROOT / name).exists()]
    if lacking:
        pytest.skip(f"not installed: make {' '.join(lacking)}")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(
        ["make", "--silent", *(part for name in READY for part in ("-o", name)), "audit-lists"],
        cwd=ROOT, env=environ, check=True,
    )  # fmt: skip
    audited = {line.lower() for path in ROOT.glob(".venv-audit/*.txt") for line in path.read_text().splitlines()}
    pins = re.findall(r"^([\w.-]+==[^\s;]+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert len(pins) > 20 and {"sphinx", "twine", "jieba"} <= {pin.partition("==")[0] for pin in pins}
    assert [pin for pin in pins if pin.lower() not in audited] == []
    assert [line for line in audited if not re.fullmatch(r"[\w.-]+==[\w.!]+", line)] == []


def test_the_security_page_says_what_was_audited_and_when() -> None:
    version = (ROOT / "VERSION").read_text().strip()
    (line,) = re.findall(
        rf"^\| {re.escape(version)} \| (.+) \|$", (ROOT / "SECURITY.md").read_text(), flags=re.MULTILINE
    )
    assert re.search(r"20\d\d-\d\d-\d\d", line)

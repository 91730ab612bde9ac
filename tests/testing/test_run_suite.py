from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from flagperf.testing import run_suite

STDERR = "vendor: acme\nflagperf: the run ended as failed: rank 1: OSError: no such card\nnext: flagperf report X\n"


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        (STDERR, "the run ended as failed: rank 1: OSError: no such card"),
        ("Traceback\nKeyError: 'a'\n", "KeyError: 'a'"),
    ],
)
def test_the_first_line_of_a_failure_is_its_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stderr: str, cause: str
) -> None:
    ended: Any = subprocess.CompletedProcess([], 3, "", stderr)
    monkeypatch.setattr(run_suite, "_run", lambda *arguments: ended)
    with pytest.raises(AssertionError) as caught:
        run_suite._flagperf(None, tmp_path, "run")  # type: ignore[arg-type]
    assert str(caught.value).splitlines()[0].endswith(cause)

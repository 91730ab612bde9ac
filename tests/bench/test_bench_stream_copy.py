"""STREAM's copy: built and right where there is a compiler, and a reason where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench.measure import NotMeasured
from bench.stream_copy import stream_copy


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_it_is_compiled_and_copies(tmp_path: Path) -> None:
    """It looks at its own copy before it is timed."""
    stream_copy(tmp_path, 1 << 20, threads=1)()


def test_without_a_compiler_there_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotMeasured, match="no C compiler"):
        stream_copy(tmp_path, 1 << 20, threads=1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_what_does_not_compile_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.stream_copy.SOURCE", "int copy(")
    with pytest.raises(NotMeasured, match="does not compile"):
        stream_copy(tmp_path, 1 << 20, threads=1)

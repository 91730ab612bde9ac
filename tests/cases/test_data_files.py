"""What the data folders of the cases do not show: odd lines and names. See test_data_folders."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from flagperf.errors import BadInput
from flagperf_cases.data_files import describe_file, read_lines, require_file


def test_lines_are_those_between_line_feeds(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes("one\x85two\u2028three\n\nlast".encode())
    assert read_lines(path, "get it") == ["one\x85two\u2028three", "", "last"]
    path.write_bytes(b"a\nb\n")
    assert read_lines(path, "get it") == ["a", "b"]


def test_names_that_cannot_be_recorded_are_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff.txt")
    path.touch()
    with pytest.raises(BadInput, match=r"udcff\.txt: its name is not UTF-8; rename it; get it") as caught:
        require_file(path, "get it")
    assert str(caught.value).isprintable()
    with pytest.raises(BadInput, match=r"cannot read .*null"):
        require_file(tmp_path / "a\0b", "get it")
    with pytest.raises(BadInput, match="File name too long"):
        require_file(tmp_path / ("a" * 5000), "get it")


def test_a_large_file_is_described_by_its_place_size_and_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x" * 3_000_000)
    found = describe_file(tmp_path / "a" / "b", tmp_path)
    assert (found.path, found.num_bytes) == ("a/b", 3_000_000)
    assert found.sha256 == hashlib.sha256(b"x" * 3_000_000).hexdigest()

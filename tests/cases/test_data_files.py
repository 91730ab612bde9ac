"""What is said of files on disk: the file, the line, and what to do."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from flagperf.errors import BadInput
from flagperf_cases.data_files import data_folder, describe_file, read_json_object, read_lines, require_file


def test_lines_are_those_between_line_feeds(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes("one\x85two\u2028three\n\nlast".encode())
    assert read_lines(path, "get it") == ["one\x85two\u2028three", "", "last"]
    path.write_bytes(b"a\nb\n")
    assert read_lines(path, "get it") == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "{path} is empty; get it"),
        (b"good\nbad\r\n", "{path} line 2 has a Windows line ending (CR LF)"),
        (b"good\n\xff\n", "{path} line 2 is not UTF-8; get it"),
        (b"\xef\xbb\xbfgood\n", "{path} begins with a byte order mark"),
    ],
)
def test_text_that_cannot_be_taken_as_it_is(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_lines(path, "get it")
    assert words.format(path=path) in str(caught.value) and "get it" in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="none: No such file or directory; get it"):
        require_file(tmp_path / "none", "get it")
    with pytest.raises(BadInput, match="is a folder, not a regular file; get it"):
        require_file(tmp_path, "get it")


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


@pytest.mark.parametrize(("content", "words"), [("{", "is not JSON"), ("[1]", "is not a JSON object"), ("\0", "JSON")])
def test_json_of_another_form_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(BadInput, match=f"{words}.*; get it"):
        read_json_object(tmp_path / "config.json", "get it")


def test_the_folder_has_to_be_given_and_there(tmp_path: Path) -> None:
    assert data_folder(tmp_path, "texts") == tmp_path
    with pytest.raises(BadInput, match="texts are read from --data-dir, and no --data-dir was given"):
        data_folder(None, "texts")
    with pytest.raises(BadInput, match="absent is not a folder"):
        data_folder(tmp_path / "absent", "texts")


def test_a_file_is_described_by_its_place_size_and_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x" * 3_000_000)
    found = describe_file(tmp_path / "a" / "b", tmp_path)
    assert (found.path, found.num_bytes) == ("a/b", 3_000_000)
    assert found.sha256 == hashlib.sha256(b"x" * 3_000_000).hexdigest()

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.errors import BadInput
from flagperf.spec.user_file import UserFile, read_user_file


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_of_this_folder_is_read_unasked_if_there_is_one() -> None:
    assert read_user_file(None) == UserFile()
    Path("flagperf.toml").touch()
    assert read_user_file(None) == UserFile(path="flagperf.toml")
    Path("flagperf.toml").write_text('[environment]\nmachine = "mine"\n[cases.toy.training]\nbatch_size = 8\n')
    found = read_user_file(None)
    assert found == UserFile({"machine": "mine"}, {"toy": {"training": {"batch_size": 8}}}, path="flagperf.toml")


def test_a_file_that_is_asked_for_goes_before_the_one_of_this_folder(tmp_path: Path) -> None:
    Path("flagperf.toml").write_text("[cases.toy]\na = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("[cases.toy]\na = 2\n")
    assert read_user_file(str(other)) == UserFile({}, {"toy": {"a": 2}}, path=str(other))
    with pytest.raises(BadInput, match=r"cannot read mine\.toml: No such file or directory"):
        read_user_file("mine.toml")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'path = "x"\n', "unknown table 'path'"),
        (b"cases = 3\n", r"flagperf\.toml: Expected `object`"),
        (b"[cases]\ntoy = 3\n", r"flagperf\.toml: Expected `object`"),
        (b'environment = "x"\n', r"flagperf\.toml: Expected `object`"),
        (b"\xff\xfe", r"flagperf\.toml is not valid TOML"),
        (b"a = 1\na = 2\n", r"flagperf\.toml is not valid TOML"),
    ],
)
def test_a_bad_file_is_bad_input(content: bytes, problem: str) -> None:
    Path("flagperf.toml").write_bytes(content)
    with pytest.raises(BadInput, match=problem):
        read_user_file(None)

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.errors import BadInput
from flagperf.spec.user_file import UserFile, read_user_file


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_no_file_is_no_values() -> None:
    assert read_user_file(None) == UserFile()


def test_the_file_of_this_folder_is_read_unasked() -> None:
    Path("flagperf.toml").write_text('[environment]\nmachine = "mine"\n[cases.toy.training]\nbatch_size = 8\n')
    found = read_user_file(None)
    assert found == UserFile({"machine": "mine"}, {"toy": {"training": {"batch_size": 8}}}, path="flagperf.toml")


def test_a_file_that_is_asked_for_goes_before_the_one_of_this_folder(tmp_path: Path) -> None:
    Path("flagperf.toml").write_text("[cases.toy]\na = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("[cases.toy]\na = 2\n")
    assert read_user_file(str(other)) == UserFile({}, {"toy": {"a": 2}}, path=str(other))


def test_an_empty_file_is_a_file() -> None:
    Path("flagperf.toml").touch()
    assert read_user_file(None) == UserFile(path="flagperf.toml")


@pytest.mark.parametrize("table", ["case.toy", "values", "path", "cluster"])
def test_an_unknown_table_is_named_with_those_that_there_are(table: str) -> None:
    Path("flagperf.toml").write_text(f"[{table}]\na = 1\n")
    with pytest.raises(BadInput) as caught:
        read_user_file(None)
    message = str(caught.value)
    assert message.startswith("flagperf.toml: ") and table.partition(".")[0] in message
    assert "(it may have [environment], [cases.NAME]" in message and "[clusters.NAME]" in message


def test_path_is_no_key_of_the_file_either() -> None:
    Path("flagperf.toml").write_text('path = "x"\n')
    with pytest.raises(BadInput, match="unknown table 'path'"):
        read_user_file(None)


@pytest.mark.parametrize("text", ["cases = 3\n", "[cases]\ntoy = 3\n", 'environment = "x"\n'])
def test_a_table_of_the_wrong_type_is_bad_input(text: str) -> None:
    Path("flagperf.toml").write_text(text)
    with pytest.raises(BadInput, match=r"flagperf\.toml: Expected `object`"):
        read_user_file(None)


@pytest.mark.parametrize("content", [b"[cases\n", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_bad_toml_is_named(content: bytes) -> None:
    Path("flagperf.toml").write_bytes(content)
    with pytest.raises(BadInput, match=r"flagperf\.toml is not valid TOML"):
        read_user_file(None)


def test_a_missing_file_that_was_asked_for_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"cannot read mine\.toml: No such file or directory"):
        read_user_file("mine.toml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a folder, not a regular file"):
        read_user_file(str(tmp_path))

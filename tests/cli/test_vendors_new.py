"""flagperf vendors new"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flagperf.cli import cli
from flagperf.cli.vendors import write_adapter
from flagperf.errors import BadInput


def new(*arguments: str) -> Result:
    """From the top, as a user does: a command that is called by itself keeps other words for its help."""
    return CliRunner().invoke(cli, ["vendors", "new", *arguments])


@pytest.mark.parametrize("word", ["Acme", "9acme", "ac-me", "ac me", "../acme", ""])
def test_a_vendor_word_is_one_lower_case_word(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = new(word).exception
    assert isinstance(error, BadInput) and "is not a vendor word" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_the_word_of_an_installed_adapter_is_taken(tmp_path: Path) -> None:
    error = new("cpu", "--folder", str(tmp_path / "package")).exception
    assert isinstance(error, BadInput) and "choose another one" in str(error)


def test_the_name_of_an_installed_package_is_taken(tmp_path: Path) -> None:
    error = new("cases", "--folder", str(tmp_path / "package")).exception
    assert isinstance(error, BadInput) and "a package flagperf_cases is already installed" in str(error)


def test_nothing_is_written_over_and_nothing_is_left_half(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert "exists" in str(new("acme", "--folder", str(tmp_path / "there")).exception)
    assert "is not a folder" in str(new("acme", "--folder", str(tmp_path / "no" / "where")).exception)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_the_package_says_that_it_is_typed(tmp_path: Path) -> None:
    assert "src/flagperf_acme/py.typed" in write_adapter("acme", tmp_path / "package")
    assert (tmp_path / "package" / "src" / "flagperf_acme" / "py.typed").read_text() == ""


def test_what_was_written_is_json_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    done = new("acme", "--folder", str(folder), "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["folder"] == str(folder)
    assert sorted(said["files"]) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    )

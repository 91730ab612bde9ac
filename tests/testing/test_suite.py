"""Reference material beside the repository: read, skipped, or missed where it must be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.testing import shared_file


@pytest.fixture
def test_file(tmp_path: Path) -> str:
    (tmp_path / "shared" / "transcripts" / "acme").mkdir(parents=True)
    (tmp_path / "shared" / "transcripts" / "acme" / "list.txt").write_text("one card\n")
    return str(tmp_path / "repository" / "tests" / "test_acme_captures.py")


def test_a_file_beside_the_repository_is_found(test_file: str) -> None:
    assert shared_file(test_file, "transcripts/acme/list.txt").read_text() == "one card\n"


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_file_that_is_missing_from_the_folder_fails_in_ci_alone(
    ci: str, outcome: type[BaseException], test_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="is not there"):
        shared_file(test_file, "transcripts/acme/memory.txt")


def test_without_the_folder_the_test_is_skipped_even_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="beside this repository"):
        shared_file(str(tmp_path / "test_acme_captures.py"), "transcripts/acme/list.txt")

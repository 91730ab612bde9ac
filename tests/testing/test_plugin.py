"""Tests of reference material: left out where it is not here, in one line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from adapter_builders import run_suites

from flagperf.testing import shared_file

TESTS = """
import pytest
from flagperf.testing import shared_file

@pytest.mark.shared("transcripts/acme/list.txt")
@pytest.mark.parametrize("number", [1, 2])
def test_capture(number):
    assert shared_file(__file__, "transcripts/acme/list.txt").read_text()

def test_other():
    pass
"""


@pytest.mark.parametrize(
    ("files", "ci", "options", "code", "said"),
    [
        ([], "true", (), 0, "2 tests of reference material are not collected: there is no folder `shared` beside"),
        (["README.md"], "true", (), 1, "Failed: {shared}/transcripts/acme/list.txt is not there"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in (
                ([], "", ("-p", "xdist", "-n", "2"), 0, "2 tests of reference material are not collected: there is no"),
                (
                    ["README.md"],
                    "",
                    (),
                    0,
                    "2 tests of reference material are not collected: {shared}/transcripts/acme",
                ),
                (["acme/list.txt"], "true", (), 0, "3 passed"),
            )
        ),
    ],
)
def test_what_reads_files_that_are_not_here_is_left_out_and_counted(
    files: list[str], ci: str, options: tuple[str, ...], code: int, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("CI", ci)
    for name in files:
        path = tmp_path / "shared" / "transcripts" / name
        path.parent.mkdir(parents=True)
        path.write_text("one card\n")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "test_acme.py").write_text(TESTS)
    done = run_suites(repository, "test_acme.py", *options)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.count(said.format(shared=tmp_path / "shared")) >= 1, done.stdout
    assert done.stdout.count("tests of reference material are") == ("not collected" in said)


@pytest.mark.parametrize(
    ("file", "ci", "outcome", "words"),
    [
        ("list.txt", "true", None, ""),
        ("memory.txt", "true", pytest.fail.Exception, "is not there"),
        ("memory.txt", "", pytest.skip.Exception, "is not there"),
        ("", "true", pytest.skip.Exception, "beside this repository"),
    ],
)
def test_a_file_is_found_beside_the_repository_or_skips_the_test_and_fails_it_in_ci(
    file: str, ci: str, outcome: type[BaseException] | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    if file:
        (tmp_path / "shared" / "transcripts" / "acme").mkdir(parents=True)
        (tmp_path / "shared" / "transcripts" / "acme" / "list.txt").write_text("one card\n")
    with pytest.raises(outcome, match=words) if outcome else contextlib.nullcontext():
        path = shared_file(str(tmp_path / "repository" / "tests" / "test_acme.py"), f"transcripts/acme/{file}")
        assert path.read_text() == "one card\n"

"""A case's check of its data: what it finds, and what happens where the check itself fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.agent.node_checks import check
from flagperf.api import DataFile
from flagperf.spec.protocol import CheckAnswer, CheckRequest


def answer(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> CheckAnswer:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    return check(CheckRequest(f"{name}:check_files", str(folder), {"rows": 3}))


def test_files_are_those_that_the_case_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "from flagperf.api import DataFile\n"
        "def check_files(data_dir, values):\n    return [DataFile(data_dir.name, values['rows'], 'abc')]"
    )
    found = answer(tmp_path, monkeypatch, "checktest_good", source)
    assert found == CheckAnswer((DataFile(tmp_path.name, 3, "abc"),))


def test_the_cases_own_message_is_the_answer_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from flagperf.errors import BadInput\ndef check_files(*_):\n    raise BadInput('no rows; get some')"
    assert answer(tmp_path, monkeypatch, "checktest_bad_input", source) == CheckAnswer(problem="no rows; get some")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def check_files(*_):\n    return 1 / 0", "ZeroDivisionError: division by zero ({folder}/{name}.py line 2)"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("def check_file(*_): ...", "AttributeError: module '{name}' has no attribute 'check_files'"),
        ("def check_files(data_dir): ...", "TypeError: check_files() takes 1 positional argument"),
        ("def check_files(*_): return ['train.tsv']", "ValidationError: Expected `object`, got `str`"),
        ("def check_files(*_): return None", "ValidationError: Expected `array`, got `null`"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
    ],
)
def test_a_look_that_fails_is_one_message_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, source: str, words: str
) -> None:
    name = f"checktest_{request.node.callspec.indices['source']}"
    found = answer(tmp_path, monkeypatch, name, source)
    assert found.problem.startswith(f"{name}:check_files, the case's check of its data, failed: ")
    assert words.format(folder=tmp_path, name=name) in found.problem
    assert found.files == ()

"""[[data]] of case.toml is the one place that says what data there is and where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_harness import CaseHarness
from write_data_docs import readmes, render

CASES = [path.parent.name for path in readmes()]


@pytest.mark.parametrize("readme", readmes(), ids=CASES)
def test_the_readme_says_what_case_toml_says(readme: Path) -> None:
    assert readme.read_text() == render(readme), "run `make docs`"


@pytest.mark.parametrize("name", CASES)
def test_whoever_lacks_data_is_told_where_it_is_under_which_licence(name: str) -> None:
    for data in CaseHarness(name).manifest().data:
        assert data.take
        assert data.licence
        assert data.when
        assert data.urls or data.name == "text"
        assert "DIR" in data.command or data.name == "text"


def test_cases_with_real_data_list_it() -> None:
    assert CASES == ["aquila_33b", "distilbert", "glm", "llama2_70b", "llama2_7b_finetune"]

from __future__ import annotations

import pytest

from flagperf.errors import UnknownLayout, unknown_name

RULER = "+" + "-" * 300 + "+"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("+---+\n| 1 |\n", "| 1 |", "odd; the line: '| 1 |'"),
        (
            "+---+\n| 1 |\nERROR: card 2 is gone\n",
            "| 1 |",
            "odd; the line: '| 1 |'; the tool says: 'ERROR: card 2 is gone'",
        ),
        ("Failed to start\n", "Failed to start", "odd; the line: 'Failed to start'"),
        (f"{RULER}\n| A tool |\n{RULER}\n| 1 |\n", "", "odd; the output begins: '| A tool |\\n| 1 |'"),
        (f"{RULER}\n", "", "odd; the output begins: '(nothing)'"),
        ("", "", "odd; the output begins: '(nothing)'"),
        ("ecc errors: 0\n", "", "odd; the output begins: 'ecc errors: 0'"),
        ("x" * 500, "", f"odd; the output begins: '{'x' * 200}'"),
    ],
)
def test_an_unknown_layout_quotes_what_differs_and_what_the_tool_says_of_errors(
    text: str, line: str, words: str
) -> None:
    error = UnknownLayout("odd", text, line)
    assert str(error) == words and error.text == text


def test_of_many_known_names_some_are_listed_and_the_others_counted() -> None:
    assert str(unknown_name("run", "?", map(str, range(10, 30)))).endswith("28, 29")
    assert str(unknown_name("run", "?", map(str, range(10, 33)))).endswith("28, 29 and 3 more")

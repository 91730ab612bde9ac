"""Messages become words, and what a record brings never breaks a page."""

from __future__ import annotations

import msgspec
import pytest

from flagperf.messages import Message, clauses, message, render, usable, words

WHO = message("name.ranks", names=[0, 2])
SAID = message("rank.unsuccessful", who=WHO, why="the link went down")


def test_a_message_is_said_in_each_language_also_after_json_and_with_the_words_of_others() -> None:
    assert render(SAID) == str(SAID) == "ranks 0, 2 did not succeed: the link went down"
    again = msgspec.json.decode(msgspec.json.encode(SAID), type=Message)
    assert render(again, "zh") == render(SAID, "zh") == "rank 0、2未成功：the link went down"
    literal = message("rank.unsuccessful", who=WHO, why="{who} {0} %s")
    assert render(literal) == "ranks 0, 2 did not succeed: {who} {0} %s"


@pytest.mark.parametrize(
    "said",
    [
        None,
        Message("from.the_future", {}),
        Message("rank.unsuccessful", {}),
        Message("rank.unsuccessful", {"who": {"code": "no.such"}, "why": ""}),
        Message("rank.unsuccessful", {"who": {"code": 7}, "why": ""}),
    ],
)
def test_what_cannot_be_said_again_is_shown_as_it_was_recorded(said: Message | None) -> None:
    assert words(usable(said, "as it was said"), "zh") == "as it was said"


def test_empty_clauses_are_left_out() -> None:
    assert clauses(["a", "", "b"], "en") == "a; b"
    assert clauses(["a", "", "b"], "zh") == "a；b"

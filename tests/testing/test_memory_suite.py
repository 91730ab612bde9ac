from __future__ import annotations

from typing import Any

import pytest

from flagperf.testing import memory_suite


class Probe:
    def ask(self, *_: Any) -> dict[str, Any]:
        unlisted = {"device_id": "a", "missing": {"used_bytes": "the tool did not list this card"}}
        return {"readings": [unlisted, {"device_id": "b"}]}


@pytest.mark.parametrize(
    ("card", "cause"),
    [("a", "no used_bytes of a: the tool did not list this card"), ("b", "no used_bytes of b: without a reason")],
)
def test_memory_that_cannot_be_read_is_told_with_its_cause(card: str, cause: str) -> None:
    with pytest.raises(AssertionError, match=cause):
        memory_suite._used(Probe(), card)  # type: ignore[arg-type]

from __future__ import annotations

import os

import pytest
from needs import needs_root_and


def test_what_is_missing_skips_with_the_reason_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-daemon not found"):
        needs_root_and("sh", "no-such-daemon")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-daemon not found"):
        needs_root_and("sh", "no-such-daemon")


def test_without_root_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs root"):
        needs_root_and("sh")

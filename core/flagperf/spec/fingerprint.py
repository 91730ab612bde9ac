"""fingerprint: whether two JSON values are the same, whoever wrote them and in which order."""

from __future__ import annotations

from typing import Any


def fingerprint(value: Any) -> str:
    """sha256 of a decoded JSON value, written with sorted keys and no spaces."""
    import hashlib  # neither at the top: every command imports this module, and few call it
    import json

    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()

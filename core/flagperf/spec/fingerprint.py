"""fingerprint: a hash to compare JSON values, independent of key order and formatting."""

from __future__ import annotations

from typing import Any


def fingerprint(value: Any) -> str:
    """sha256 of a decoded JSON value, serialised with sorted keys and no spaces."""
    import hashlib  # lazy imports: every command imports this module, few call it
    import json

    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()

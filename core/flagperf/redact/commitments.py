"""The owner's key of a redaction: a random salt, and every value that was replaced. It stays with the original. Without
it, a commitment says nothing, even of a name that is easy to guess; with it, anybody can check all of them."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.files import cannot_write, read_regular
from flagperf.redact.pseudonyms import Replaced
from flagperf.store.bundle import MAX_JSON_BYTES
from flagperf.store.redaction import Committed

KEY_SCHEMA = 1
SALT_BYTES = 32


class Reference(msgspec.Struct, frozen=True):
    """What ratios are relative to."""

    name: str
    values: dict[str, float]
    """Metric -> its value there, in the unit of the metric."""


class RedactionKey(msgspec.Struct, frozen=True):
    schema: int
    flagperf_version: str
    """That made the redaction."""
    original_run: str
    redacted_run: str
    salt: str
    """In hexadecimal."""
    replaced: tuple[Replaced, ...]
    with_logs: bool = True
    reference: Reference | None = None
    """None for a copy that keeps its absolute values."""

    def commitment(self, kind: str, name: str, value: str) -> str:
        said = msgspec.json.encode([kind, name, value])
        return hmac.new(bytes.fromhex(self.salt), said, hashlib.sha256).hexdigest()

    def commit(self, kind: str, name: str, value: str) -> Committed:
        return Committed(kind, name, self.commitment(kind, name, value))


def new_salt() -> str:
    return secrets.token_hex(SALT_BYTES)


def write_key(path: Path, key: RedactionKey) -> None:
    """Readable by its owner alone. Never replaces a file: the key of another redaction may be there."""
    content = msgspec.json.format(msgspec.json.encode(key), indent=1) + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except FileExistsError:
        raise BadInput(
            f"{path} exists; it may be the key of another redaction, choose another file with --key"
        ) from None
    except OSError as error:
        raise cannot_write(f"cannot write the key {path}: {error.strerror}; see --key", error) from None


def read_key(path: Path) -> RedactionKey:
    try:
        key = msgspec.json.decode(read_regular(path, MAX_JSON_BYTES, follow_links=True), type=RedactionKey)
        bytes.fromhex(key.salt)
    except OSError as error:
        raise BadInput(
            f"cannot read the key {path}: {error.strerror}; `runs redact` wrote it beside the original, see --key"
        ) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not the key of a redaction: {error}") from None
    return key

"""What people say about a run afterwards: tags and a note. They are beside the sealed files; no hash covers them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from flagperf.errors import BadInput, BundleFailed
from flagperf.escapes import is_utf8
from flagperf.files import read_regular, write_atomically
from flagperf.store.paths import LABELS_FILE

MAX_LABELS_BYTES = 1 << 20
MAX_NOTE_CHARACTERS = 10_000

_TAG = re.compile(r"[\w][\w.+-]{0,63}")


class Labels(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] = ()
    note: str = ""


def read_labels(bundle: Path) -> Labels:
    """Those of a run without any are empty. Raises BadInput for a file that is not ours."""
    try:
        return msgspec.json.decode(read_regular(bundle / LABELS_FILE, MAX_LABELS_BYTES), type=Labels)
    except FileNotFoundError:
        return Labels()
    except OSError as error:
        raise BadInput(f"cannot read {bundle / LABELS_FILE}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{bundle / LABELS_FILE} has no tags and note of a run: {error}; remove it") from None


def write_labels(bundle: Path, labels: Labels) -> None:
    """Without tags and note, the file is removed."""
    path = bundle / LABELS_FILE
    try:
        if labels == Labels():
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, msgspec.json.format(msgspec.json.encode(labels), indent=1) + b"\n")
    except OSError as error:
        raise BundleFailed(f"cannot write {path}: {error.strerror}") from None


def checked_tag(tag: str) -> str:
    """Raises BadInput for a word that is no tag."""
    if not _TAG.fullmatch(tag):
        shape = "a tag has up to 64 letters, digits and the characters . + - _, and begins with a letter or digit"
        raise BadInput(f"{tag[:80]!r} is not a tag; {shape}")
    return tag


def checked_note(text: str) -> str:
    """Raises BadInput for a text that cannot be kept."""
    if not is_utf8(text):
        raise BadInput("the note is not UTF-8, so it cannot be kept")
    if len(text) > MAX_NOTE_CHARACTERS:
        raise BadInput(f"the note has {len(text):,} characters, more than {MAX_NOTE_CHARACTERS:,}; shorten it")
    return text.strip()

"""Reads and checks a case's files before a run. Every error names the file, the line and what to do.

`check_files` of a case runs in the agent, so nothing here imports torch. `advice` says how to get the right files.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput

_CHUNK_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def data_folder(data_dir: Path | None, contents: str) -> Path:
    """--data-dir, if it was given and exists. `contents` is what the case reads from it."""
    if data_dir is None or not data_dir.is_dir():
        found = "no --data-dir was given" if data_dir is None else f"{data_dir} is not a folder"
        raise BadInput(f"{contents} are read from --data-dir, and {found}; the case's README says how to get them")
    return data_dir


def require_file(path: Path, advice: str) -> Path:
    """The same path, if the file can be opened."""
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}; {advice}") from None


def read_lines(path: Path, advice: str) -> list[str]:
    """Lines of UTF-8 text, split at line feeds only. Line n of the file is item n - 1."""
    content = require_file(path, advice).read_bytes()
    if not content:
        raise BadInput(f"{path} is empty; {advice}")
    if content.startswith(_BYTE_ORDER_MARK):
        raise BadInput(f"{path} begins with a byte order mark, which an editor has added; {advice}")
    return [_text(path, number, line, advice) for number, line in enumerate(_split(content), 1)]


def read_json(path: Path, advice: str) -> Any:
    try:
        return json.loads(require_file(path, advice).read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({error}); {advice}") from None


def read_json_object(path: Path, advice: str) -> dict[str, Any]:
    content = read_json(path, advice)
    if not isinstance(content, dict):
        raise BadInput(f"{path} is not a JSON object, but begins with {str(content)[:40]!r}; {advice}")
    return content


def describe_file(path: Path, data_dir: Path) -> DataFile:
    """Size and sha256, to be recorded with the run."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return DataFile(path.relative_to(data_dir).as_posix(), path.stat().st_size, digest.hexdigest())


def _split(content: bytes) -> list[bytes]:
    return content.removesuffix(b"\n").split(b"\n")


def _text(path: Path, number: int, line: bytes, advice: str) -> str:
    if line.endswith(b"\r"):
        raise BadInput(
            f"{path} line {number} has a Windows line ending (CR LF), which would corrupt its last column; "
            f"convert it, `sed -i 's/\\r$//' {path}`, or {advice}"
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{path} line {number} is not UTF-8; {advice}") from None

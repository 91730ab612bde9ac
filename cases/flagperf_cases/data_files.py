"""Read the files of --data-dir, and check values, for `check_files` of all cases.

`check_files` of a case runs in the agent, so nothing here imports torch. Every error names the file, the line and what
to do; `advice` says how to get the right files.

Files of --data-dir come from anywhere. Only regular files are read, and none without a limit: a pipe would hang the
command, a link to a device or a sparse file would fill the memory. Links to regular files are followed, because the
folders of download tools consist of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flagperf.api import DataFile
from flagperf.errors import BadInput

_CHUNK_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

MAX_TEXT_BYTES = 2 << 30
MAX_JSON_BYTES = 32 << 20
"""Parsed JSON takes up to thirty times the memory of its text."""


def data_folder(data_dir: Path | None, contents: str) -> Path:
    """Return --data-dir, if it was given and exists. `contents` is what the case reads from it."""
    if data_dir is None or not os.path.isdir(data_dir):  # noqa: PTH112  Path.is_dir raises for too long a name
        found = "no --data-dir was given" if data_dir is None else f"{data_dir} is not a folder"
        raise BadInput(f"{contents} are read from --data-dir, and {found}; the case's README says how to get them")
    return data_dir


def is_there(path: Path) -> bool:
    """Return True if the folder has an entry of this name, of any kind. What it is, `require_file` says."""
    return os.path.lexists(path)


def require_file(path: Path, advice: str) -> Path:
    """Return the same path, if it is a regular file that can be opened."""
    try:
        str(path).encode()  # the name is recorded with the run
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise BadInput(f"{path} is {_KINDS.get(stat.S_IFMT(mode), 'a device')}, not a regular file; {advice}")
        with path.open("rb"):
            return path
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name with a null character
        raise _unopened(path, error, advice) from None


def read_bytes(path: Path, advice: str, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Raise BadInput for a file of more than `max_bytes`."""
    try:
        with require_file(path, advice).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise BadInput(f"{path} has {size >> 20} MiB, more than the limit of {max_bytes >> 20} MiB; {advice}")
            return file.read(size)
    except OSError as error:
        raise _unopened(path, error, advice) from None


def read_text(path: Path, advice: str) -> str:
    """Return UTF-8 text that is not empty, with the line ends that it has."""
    content = read_bytes(path, advice)
    if not content:
        raise BadInput(f"{path} is empty; {advice}")
    if content.startswith(_BYTE_ORDER_MARK):
        raise BadInput(f"{path} begins with a byte order mark, which an editor has added; {advice}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path} line {number} is not UTF-8; {advice}") from None


def read_lines(path: Path, advice: str) -> list[str]:
    """Return the lines of UTF-8 text, split at line feeds only. Line n of the file is item n - 1."""
    lines = read_text(path, advice).removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        if line.endswith("\r"):
            raise BadInput(
                f"{path} line {number} has a Windows line ending (CR LF), which would corrupt its last column; "
                f"convert it, `sed -i 's/\\r$//' {path}`, or {advice}"
            )
    return lines


def read_json(path: Path, advice: str) -> Any:
    return parse_json(read_bytes(path, advice, MAX_JSON_BYTES), str(path), advice)


def parse_json(content: bytes | str, where: str, advice: str) -> Any:
    """Return what the text says. `where` is the file, or the line of it."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        parsed = json.loads(text)
        if _SURROGATE.search(text):  # half a character is no text, and whatever it is given to later raises
            json.dumps(parsed, ensure_ascii=False).encode()
    except RecursionError:
        raise BadInput(f"{where} is not JSON that can be read: it is nested too deeply; {advice}") from None
    except UnicodeEncodeError:
        raise BadInput(f"{where} is not JSON that can be read: it has half of a surrogate pair; {advice}") from None
    except ValueError as error:
        raise BadInput(f"{where} is not JSON ({error}); {advice}") from None
    return parsed


def read_json_object(path: Path, advice: str) -> dict[str, Any]:
    content = read_json(path, advice)
    if not isinstance(content, dict):
        raise BadInput(f"{path} is not a JSON object, but begins with {str(content)[:40]!r}; {advice}")
    return content


def describe_file(path: Path, data_dir: Path) -> DataFile:
    """Return size and sha256, to be recorded with the run."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return DataFile(path.relative_to(data_dir).as_posix(), path.stat().st_size, digest.hexdigest())


def shown(text: object, num_characters: int = 80) -> str:
    """Shorten what a file says for a message: short, on one line, and printable."""
    short = str(text)[:num_characters]
    return short if short.isprintable() else ascii(short)[1:-1]


def _unopened(path: Path, error: Exception, advice: str) -> BadInput:
    reason = error.strerror if isinstance(error, OSError) else error
    if isinstance(error, UnicodeEncodeError):
        reason = "its name is not UTF-8; rename it"
    return BadInput(f"cannot read {shown(path, 300)}: {reason}; {advice}")


# --- values -----------------------------------------------------------------------------------------------------------


def check_divisible(model: Mapping[str, Any], whole: str, part: str) -> None:
    if model[whole] % model[part]:
        raise BadInput(
            f"model.{whole}={model[whole]} is not divisible by model.{part}={model[part]}; choose a multiple of it"
        )


def check_synthetic_rows(data: Mapping[str, Any]) -> None:
    """Raise BadInput for synthetic data of 0 rows: that means all rows of a file, and there is none."""
    for key in ("rows", "eval_rows"):
        if data["source"] == "synthetic" and not data[key]:
            raise BadInput(
                f"data.source=synthetic generates as many rows as data.{key} says, and it is 0; set it, e.g. to 1000"
            )

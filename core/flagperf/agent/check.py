"""The verb `check`: the case checks its values and the data on this node, before any process starts."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from typing import IO

import msgspec

from flagperf.api import CheckFiles, DataFile
from flagperf.errors import BadInput
from flagperf.plugins.loading import typed
from flagperf.spec import CheckAnswer, CheckRequest


def main(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(request_text, type=CheckRequest)
    stdout.write(msgspec.json.encode(check(request)))
    return 0


def check(request: CheckRequest) -> CheckAnswer:
    """Whatever the case's function raises becomes the answer, with the line where it happened."""
    try:
        files = _function(request.check_files)(Path(request.data_dir) if request.data_dir else None, request.values)
        return CheckAnswer(typed(files, tuple[DataFile, ...]))
    except BadInput as error:
        return CheckAnswer(problem=str(error))
    except BaseException as error:  # noqa: BLE001  a plugin boundary
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({place.filename} line {place.lineno})"
        return CheckAnswer(problem=f"{request.check_files}, the case's check of its data, failed: {what}")


def _function(reference: str) -> CheckFiles:
    module, _, name = reference.partition(":")
    function: CheckFiles = getattr(importlib.import_module(module), name)
    return function

"""`agent check`: the case's own look at its values and at the data on this node, before any process starts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from flagperf.api import DataFile
from flagperf.errors import BadInput
from flagperf.spec import CheckAnswer, CheckRequest


def main(stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(stdin.read(), type=CheckRequest)
    stdout.write(msgspec.json.encode(check(request)))
    return 0


def check(request: CheckRequest) -> CheckAnswer:
    module, _, name = request.check_files.partition(":")
    check_files: Callable[..., list[DataFile]] = getattr(importlib.import_module(module), name)
    try:
        files = check_files(Path(request.data_dir) if request.data_dir else None, request.values)
    except BadInput as error:
        return CheckAnswer(problem=str(error))
    return CheckAnswer(tuple(files))

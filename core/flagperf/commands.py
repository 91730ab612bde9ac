"""Commands to quote in messages: a user can paste them to run this installation of flagperf, or its pip."""

from __future__ import annotations

import sys
from pathlib import Path


def flagperf_command(*arguments: object) -> str:
    """`flagperf report latest`, or `/venv/bin/python -m flagperf report latest` if `flagperf` is not on PATH or belongs
    to another installation."""
    return _command("flagperf", arguments)


def pip_command(*arguments: object) -> str:
    return _command("pip", arguments)


def _command(name: str, arguments: tuple[object, ...]) -> str:
    import shlex  # lazy imports here and below: only messages need them
    import shutil

    words = [name] if _is_ours(shutil.which(name)) else [sys.executable, "-m", name]
    return shlex.join([*words, *map(str, arguments)])


def _is_ours(script: str | None) -> bool:
    """Whether a script on PATH belongs to this Python: it is in its scripts folder, or is the running program."""
    if script is None:
        return False
    import sysconfig

    beside = Path(sysconfig.get_path("scripts")) / Path(script).name
    return Path(script).resolve() in (beside.resolve(), Path(sys.argv[0]).resolve())

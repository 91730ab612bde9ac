"""Commands for messages: what a user can type, as it stands, to run this very flagperf or its pip."""

from __future__ import annotations

import sys
from pathlib import Path


def flagperf_command(*arguments: object) -> str:
    """`flagperf report latest`, or `/venv/bin/python -m flagperf report latest` where PATH finds no or another one."""
    return _command("flagperf", arguments)


def pip_command(*arguments: object) -> str:
    return _command("pip", arguments)


def _command(name: str, arguments: tuple[object, ...]) -> str:
    import shlex  # not at the top, like what follows: only messages need it
    import shutil

    words = [name] if _is_ours(shutil.which(name)) else [sys.executable, "-m", name]
    return shlex.join([*words, *map(str, arguments)])


def _is_ours(script: str | None) -> bool:
    """Whether a script that PATH finds belongs to this Python: it stands beside it, or is what was started."""
    if script is None:
        return False
    import sysconfig

    beside = Path(sysconfig.get_path("scripts")) / Path(script).name
    return Path(script).resolve() in (beside.resolve(), Path(sys.argv[0]).resolve())

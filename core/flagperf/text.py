"""Foreign text made safe to print; command lines to quote in messages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Characters of foreign text that control a terminal or the reading order: escape sequences, C1 controls,
# bidirectional overrides, line separators, lone surrogates. Whatever a file, a tool or an argument says is printed
# without them.


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_LINE_END = re.compile("[\n\r\v\f\x85\u2028\u2029\t]\\s*")


def one_line(text: str) -> str:
    """Turn line ends and tabs into spaces, so that a text cannot pass for several lines; show other controls."""
    return visible(_LINE_END.sub(" ", text.rstrip()))


def visible(text: str) -> str:
    """Turn every control into its escape in Python and JSON: `\\x1b`, `\\u202e`."""
    return _CONTROL.sub(lambda found: _escape(found[0]), text)


def _escape(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if ord(letter) < 0x100 else f"\\u{ord(letter):04x}"


def without_controls(text: str) -> str:
    return _CONTROL.sub("", text)


def is_utf8(text: str) -> bool:
    """Tell if every program can read it. Names of files and arguments may have bytes that are not characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def safe_json(text: str) -> str:
    """Return the same JSON value. JSON escapes only some of the controls; the others can only be inside its strings."""
    return _CONTROL.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


# Commands to quote in messages: a user can paste them to run this installation of flagperf, or its pip.


def flagperf_command(*arguments: object) -> str:
    """Return `flagperf report latest`, or `/venv/bin/python -m flagperf report latest` if `flagperf` is not on PATH or
    belongs to another installation."""
    return _command("flagperf", arguments)


def pip_command(*arguments: object) -> str:
    return _command("pip", arguments)


def _command(name: str, arguments: tuple[object, ...]) -> str:
    import shlex  # lazy imports here and below: only messages need them
    import shutil

    words = [name] if _is_ours(shutil.which(name)) else [sys.executable, "-m", name]
    return shlex.join([*words, *map(str, arguments)])


def _is_ours(script: str | None) -> bool:
    """Tell if a script on PATH belongs to this Python: it is in its scripts folder, or is the running program."""
    if script is None:
        return False
    import sysconfig

    beside = Path(sysconfig.get_path("scripts")) / Path(script).name
    return Path(script).resolve() in (beside.resolve(), Path(sys.argv[0]).resolve())

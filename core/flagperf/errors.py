"""Every error that a user can see.

    FlagPerfError
    |- BadInput          exit 2   the command line, a file or a value is wrong
    |  |- MissingPart    exit 2   something must be installed first
    |  `- BundleInUse    exit 2   the command of that run is still at work, or may be
    |- PluginFailed      exit 3   an installed plugin's code raised, or gave what the contract does not know
    |- NodeFailed        exit 3   a node's agent did not answer, or died
    |- ToolFailed        exit 3   a vendor's tool is missing, or a tool ended with an error
    |  |- ToolSilent     exit 3   it could not be started, or timed out: do not retry
    |  `- UnknownLayout  exit 3   it printed output in a format that the adapter cannot parse
    |- BundleFailed      exit 3   a bundle or another file cannot be written, and not because of its place: full disk
    |- Unsupported       exit 6   this card, torch or case cannot do what was asked
    `- DoesNotFit        exit 8   a plan needs more memory than the card has

`devices` and `vendors list` print what they found and end with 3 if an adapter failed, `vendors check` if a test did,
`nodes check` if a node cannot be used.
Only `cli` turns these into exit codes. Any other uncaught exception is a bug in flagperf: traceback, exit 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class FlagPerfError(Exception):
    """The message is one paragraph: what was attempted, what was found and where, what to do next."""

    exit_code = 1


class BadInput(FlagPerfError):
    exit_code = 2


class MissingPart(BadInput):
    pass


class BundleInUse(BadInput):
    pass


class Unsupported(FlagPerfError):
    exit_code = 6


class DoesNotFit(FlagPerfError):
    exit_code = 8


class PluginFailed(FlagPerfError):
    exit_code = 3


class NodeFailed(FlagPerfError):
    exit_code = 3


class ToolFailed(FlagPerfError):
    exit_code = 3


class ToolSilent(ToolFailed):
    pass


class UnknownLayout(ToolFailed):
    """Keeps the tool's full output, so that the parser can be extended. The message quotes `line`, which differs from
    what is known, and the first line in which the tool itself speaks of an error; without either, how the output
    begins."""

    def __init__(self, what: str, text: str, line: str = "") -> None:
        said = [each.strip() for each in text.splitlines() if _WORD.search(each)]
        error = next((each for each in said if _ERROR.search(each)), "")
        quotes = {"the line": line.strip(), "the tool says": error if error != line.strip() else ""}
        if not any(quotes.values()):
            quotes["the output begins"] = "\n".join(said) or "(nothing)"
        quoted = [f"{name}: {words[:_SHOWN_CHARACTERS]!r}" for name, words in quotes.items() if words]
        super().__init__("; ".join([what, *quoted]))
        self.text = text


_SHOWN_CHARACTERS = 200
_WORD = re.compile(r"[^\W_]")
"""Not in a ruler of a table."""
_ERROR = re.compile(r"\berror\b|\bfail(s|ed|ure)?\b|\bunable to\b|\bpermission denied\b", re.IGNORECASE)


class BundleFailed(FlagPerfError):
    exit_code = 3


MOST_NAMED = 20


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> BadInput:
    """The standard error for an unknown name, with near matches."""
    import difflib  # not at the top: every command imports this module

    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    if near:
        help_text = f"did you mean {' or '.join(near)}?"
    elif choices:
        more = f" and {len(choices) - MOST_NAMED} more" if len(choices) > MOST_NAMED else ""
        help_text = f"known: {', '.join(choices[:MOST_NAMED])}{more}"
    else:
        help_text = "there are none"
    return BadInput(f"unknown {kind} {name!r}; {help_text}{' ' + hint if hint else ''}")

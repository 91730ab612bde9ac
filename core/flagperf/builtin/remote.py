"""What nodes elsewhere have in common, however they are reached."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

import msgspec

from flagperf.api import CommandOutput
from flagperf.errors import BadInput, MissingPart

SHOWN_NAMES = 20
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


def first_names(names: Sequence[str], num_nodes: int, where: str) -> Sequence[str]:
    """`where` says in words what has them."""
    if len(names) < num_nodes:
        listed = ", ".join([*names[:SHOWN_NAMES], *["..."] * (len(names) > SHOWN_NAMES)]) or "none"
        raise BadInput(f"{num_nodes} nodes are asked for, and {where} has {len(names)}: {listed}")
    return names[:num_nodes]


def check_options(cluster: str, options: msgspec.Struct) -> None:
    """What no text of an option may have, whoever reads it later."""
    for name, value in msgspec.structs.asdict(options).items():
        for text in [value] if isinstance(value, str) else value if isinstance(value, tuple) else ():
            if CONTROL_CHARACTER.search(text):
                raise BadInput(f"option {name} of cluster {cluster}: {text!r} has a control character")


def check_python(cluster: str, python: str) -> None:
    """A path that means the same wherever the command starts."""
    if python and not python.startswith("/") and ("/" in python or python.startswith(("-", "~"))):
        raise BadInput(
            f"option python of cluster {cluster}: {python!r} is neither an absolute path nor the name of a command"
        )


def check_installed(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise MissingPart(f"there is no {program} on PATH: {package}")


def last_words(output: CommandOutput) -> str:
    """Why a command failed: its own last line."""
    lines = (output.problem or output.stderr or output.stdout).strip().splitlines()
    return lines[-1].strip() if lines else f"it ended with {output.returncode} and said nothing"

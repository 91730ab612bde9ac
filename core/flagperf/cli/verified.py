"""Bundles that are not verified, in commands that print what a bundle says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from flagperf.cli.options import note
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, FlagPerfError
from flagperf.verify import verify_bundle


def warn_unless_verified(path: Path) -> None:
    trouble = _trouble(path)
    if trouble:
        note(f"warning: {trouble}")


@contextlib.contextmanager
def damage_explains(paths: Sequence[Path]) -> Iterator[None]:
    """An error nobody foresaw is the bundle's fault if the bundle is not verified, else a bug in flagperf."""
    try:
        yield
    except (FlagPerfError, MemoryError):
        raise
    except Exception as error:
        trouble = next(filter(None, map(_trouble, paths)), "")
        if not trouble:
            raise
        raise BadInput(f"cannot show what is damaged: {trouble}") from error


def _trouble(path: Path) -> str:
    problems = verify_bundle(path).problems
    if not problems:
        return ""
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    command = flagperf_command("runs", "verify", path)
    return f"{path.name} is not verified: {problems[0]}{more}; see `{command}`"

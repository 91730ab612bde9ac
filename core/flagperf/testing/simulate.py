"""A flagperf command on the simulated cards of an adapter's tests:

python -m flagperf.testing.simulate tests/test_acme_conformance.py:AcmeRig plan distilbert --vendor acme
"""

from __future__ import annotations

import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flagperf.errors import BadInput, FlagPerfError
from flagperf.files import is_file
from flagperf.kit import module_command
from flagperf.testing.suite import Rig

USAGE = "usage: python -m flagperf.testing.simulate FILE:RIG COMMAND..., as in tests/test_acme_conformance.py:AcmeRig"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        raise BadInput(USAGE)
    with tempfile.TemporaryDirectory(prefix="flagperf-simulate-") as folder:
        simulation = load_rig(arguments[0]).lay_out(Path(folder))
        if simulation is None:
            raise BadInput(f"{arguments[0]} has no simulated cards: its lay_out gives None")
        command = [*module_command(sys.executable, "flagperf"), *arguments[1:]]
        process = subprocess.Popen(command, env=simulation.environ())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the command as well, which ends in its own way
        code = process.wait()
    return code if code >= 0 else 128 - code


def load_rig(place: str) -> Rig:
    file, _, name = place.rpartition(":")
    if not is_file(Path(file)):
        raise BadInput(f"{file or place} is not a file. {USAGE}")
    sys.path.insert(0, str(Path(file).parent))  # where its helper modules stand
    try:
        rig = runpy.run_path(file).get(name)
    except ImportError as error:
        raise BadInput(f"{file} cannot be imported: {error}") from None
    if not (isinstance(rig, type) and issubclass(rig, Rig)):
        raise BadInput(f"{file} has no rig {name!r}")
    return rig()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FlagPerfError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)

from __future__ import annotations

import subprocess
import sys

from podman import Podman, in_container


def test_a_container_runs_torch_from_this_environment(podman: Podman) -> None:
    code = "import pathlib, torch; print(torch.ones(3).sum().item(), pathlib.Path('/usr/bin/apt').exists())"
    command = in_container(sys.executable, "-c", code)
    done = subprocess.run(command, env=podman.environment, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (0, "3.0 False\n"), done.stderr
    assert podman.containers() == []

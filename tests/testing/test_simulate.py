"""Commands on the simulated cards of an adapter's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from adapter_builders import TESTS, make_adapter

RIG = f"{TESTS}:AcmeRig"


def simulate(package: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (package / "tmp").mkdir()
    return subprocess.run(
        [sys.executable, "-m", "flagperf.testing.simulate", *arguments],
        cwd=package,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package / "src"), "TMPDIR": str(package / "tmp"), **variables},
        check=False,
    )


def test_a_command_sees_the_cards_and_leaves_no_machine_behind(tmp_path: Path) -> None:
    package = make_adapter(tmp_path / "package")
    done = simulate(package, RIG, "devices")
    assert done.returncode == 0, done.stderr
    assert "GPU-11" in done.stdout and "GPU-22" in done.stdout
    assert list((package / "tmp").iterdir()) == []


def test_its_exit_code_is_that_of_the_command(tmp_path: Path) -> None:
    done = simulate(make_adapter(tmp_path / "package"), RIG, "plan", "distilbert", "--vendor", "acme", "--devices", "3")
    assert done.returncode == 2
    assert "has 2 visible acme devices" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((RIG,), "usage: "),
        (("tests/none.py:AcmeRig", "devices"), "tests/none.py is not a file"),
        ((f"{TESTS}:Other", "devices"), "has no rig 'Other'"),
        ((f"{TESTS}:OUTPUT", "devices"), "has no rig 'OUTPUT'"),
    ],
)
def test_what_is_no_rig_is_one_message(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = simulate(make_adapter(tmp_path / "package"), *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and "Traceback" not in done.stderr

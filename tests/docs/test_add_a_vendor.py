"""docs/add-a-vendor.md and the tutorial for vendors do what they say: their commands are run, on simulated cards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_reader import SHORT, Reader, commands

LAY_OUT = """
import json, pathlib, sys, test_acme_conformance as tests
print(json.dumps(tests.AcmeRig().lay_out(pathlib.Path(sys.argv[1])).environ()))
"""
CHECK = "flagperf vendors check acme --tests flagperf-acme/tests"
PLAN = "flagperf plan distilbert --vendor acme --devices 2"
pytestmark = [pytest.mark.run, pytest.mark.full]


def get_cards(reader: Reader) -> None:
    """The machine of the package's own tests."""
    path = os.pathsep.join([str(reader.folder / "site"), str(reader.folder / "flagperf-acme" / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", LAY_OUT, str(reader.folder / "machine")],
        cwd=reader.folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True,
    )  # fmt: skip
    made = json.loads(done.stdout)
    reader.environ |= {name: made[name] for name in made if name == "PATH" or name.startswith("FLAGPERF_SIMULATE")}


def test_every_command_of_the_page_works_in_its_order_and_then_the_rest_of_the_tutorial(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (tmp_path / "flagperf.toml").write_text(SHORT)
    lines = commands("add-a-vendor.md")
    before = lines.index("flagperf devices")
    said = reader.types_all(lines[:before])
    without_cards = dict(reader.environ)
    get_cards(reader)
    said |= reader.types_all(lines[before:])
    (offline,) = (output for command, output in said.items() if command.startswith("pytest "))
    assert "passed" in offline and "skipped" not in offline and "xfailed" not in offline
    assert re.fullmatch(r"acme: offline: pass \(\d+ passed\); hardware: not run\n", said[CHECK])
    offline, _, hardware = said["flagperf vendors check acme --hardware"].partition("); ")
    assert offline.startswith("acme (simulated): offline: pass (") and "; --tests DIR runs what" in offline
    assert re.fullmatch(r"hardware: pass \(\d+ passed\)\n", hardware)
    assert "absent" in said["flagperf vendors list"]
    assert "GPU-11" in said["flagperf devices"] and "acme (simulated)" in said["flagperf devices"]
    plans = [output for command, output in said.items() if command.endswith(PLAN.removeprefix("flagperf "))]
    assert len(plans) == 2 and all("acme (simulated)" in plan for plan in plans)
    assert all("ACME_VISIBLE_DEVICES=0,1  # the cards of this run" in plan for plan in plans)
    assert "acme (simulated)" in said["flagperf run distilbert --vendor acme --devices 2"]
    reader.environ = without_cards
    has_followed_the_tutorial(reader, said)


def has_followed_the_tutorial(reader: Reader, said: dict[str, str]) -> None:
    """What the page has typed already is not typed again."""
    lines = commands("tutorials/vendor.md")
    rest = reader.types_all([line for line in lines if line not in said or line == "flagperf vendors list"])
    assert lines[:3] == [*list(said)[:2], CHECK]
    (report,) = (output for command, output in rest.items() if command.startswith("flagperf report "))
    assert "acme (simulated)" in report
    assert (reader.folder / "dist" / "flagperf_acme-0.1.0-py3-none-any.whl").is_file()
    assert "acme" in rest["flagperf vendors list"]
    sees_a_wrong_unit(reader)


def sees_a_wrong_unit(reader: Reader) -> None:
    """The check that the pages name finds it; that of the installed package alone cannot."""
    smi = reader.folder / "site" / "flagperf_acme" / "smi.py"
    text = smi.read_text()
    wrong = text.replace(
        'Cell(cells["memory.used [MiB]"], scale=1 << 20)', 'Cell(cells["memory.used [MiB]"], scale=10**6)'
    )
    assert wrong != text
    smi.write_text(wrong)
    checked = reader.types(CHECK)
    assert checked.returncode == 3 and "acme: offline: fail (" in checked.stdout, checked.stdout + checked.stderr

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.api import Machine


def test_a_machine_runs_tools_unless_a_test_passes_another_runner() -> None:
    assert Machine().run_tool(["echo", "C500"]).stdout == "C500\n"
    assert Machine().run_tool(["sleep", "3600"], timeout_seconds=0.1).problem == "sleep did not end within 0.1 s"


def test_files_are_read_and_matched_below_the_root(tmp_path: Path) -> None:
    for name in ("acme1", "acme0", "other"):
        (tmp_path / "dev" / name).mkdir(parents=True)
    (tmp_path / "model").write_bytes(b"Acme \xff A1\x00\n")
    machine = Machine(root=tmp_path)
    assert [machine.read(path) for path in ("/model", "/not/there", "/")] == ["Acme \ufffd A1", None, None]
    assert machine.glob("/dev/acme*") == [tmp_path / "dev" / "acme0", tmp_path / "dev" / "acme1"]
    assert machine.glob("/dev/none*") == []


def test_the_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "0")
    machine = Machine()
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "1")
    assert machine.environ["ACME_VISIBLE_DEVICES"] == "0"

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.agent.node_environment import is_simulated, node_machine
from flagperf.errors import BadInput


def test_only_1_simulates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAGPERF_SIMULATE_ROOT", str(tmp_path))
    for value, simulated in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("FLAGPERF_SIMULATE", value)
        assert is_simulated() is simulated
        assert node_machine().root == (tmp_path if simulated else Path("/"))
    monkeypatch.setenv("FLAGPERF_SIMULATE", "yes")
    with pytest.raises(BadInput, match="FLAGPERF_SIMULATE='yes'"):
        is_simulated()


@pytest.mark.parametrize("root", ["nowhere", "/" + "a" * 5_000])
def test_a_root_that_is_no_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: str) -> None:
    monkeypatch.setenv("FLAGPERF_SIMULATE", "1")
    monkeypatch.setenv("FLAGPERF_SIMULATE_ROOT", str(tmp_path / root))
    with pytest.raises(BadInput, match=r"FLAGPERF_SIMULATE_ROOT=.* is not a folder"):
        node_machine()

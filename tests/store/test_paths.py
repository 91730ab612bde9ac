from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.bundle import paths

CORE = Path(paths.__file__).parents[1]
WRITTEN = re.compile(r"(rank|node|probe|agent)-(\{|\*|0+)|parent\.jsonl|\"(events|logs|run\.json|MANIFEST)\"")


def test_names_sort_by_their_number() -> None:
    assert str(paths.rank_events(12)) == "events/rank-00012.jsonl"
    assert str(paths.node_samples(3)) == "samples/node-003.jsonl"
    logs = [paths.node_log(process, 7).name for process in ("launcher", "probe", "agent")]
    assert logs == ["node-007.log", "probe-007.log", "agent-007.log"]
    assert paths.rank_log(7).name == "rank-00007.log"


def test_what_reads_all_files_finds_what_is_written_one_by_one() -> None:
    assert paths.rank_events(123456).match(str(paths.ALL_RANK_EVENTS))
    assert paths.node_samples(1234).match(str(paths.ALL_NODE_SAMPLES))


def written_paths(sources: list[Path]) -> dict[str, str]:
    code = {path.name: re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL) for path in sources}
    return {name: match[0] for name, text in code.items() if (match := WRITTEN.search(text))}


@pytest.mark.parametrize("part", ["agent", "launch", "store", "worker"])
def test_no_other_module_writes_a_path_of_a_bundle(part: str) -> None:
    assert written_paths([path for path in (CORE / part).rglob("*.py") if path.name != "paths.py"]) == {}


def test_a_path_that_is_written_elsewhere_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text('path = folder / "logs" / f"rank-{rank:05d}.log"\n')
    assert written_paths([tmp_path / "module.py"]) == {"module.py": '"logs"'}
    assert written_paths([CORE / "store" / "paths.py"])


@pytest.mark.parametrize("module", ["flagperf.agent.node_run", "flagperf.agent.probe", "flagperf.worker.__main__"])
def test_processes_beside_the_work_do_not_import_metrics(module: str) -> None:
    code = f"import {module}, sys; print('flagperf.metrics' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

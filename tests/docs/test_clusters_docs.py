"""docs/clusters.md lists every option with its default, and its example works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flagperf.builtin.slurm import SlurmOptions
from flagperf.builtin.ssh import SshOptions

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()


def table(section: str) -> dict[str, str]:
    """Option -> what stands below `default`."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", text, re.MULTILINE))


@pytest.mark.parametrize(("section", "options"), [("ssh", SshOptions), ("Slurm", SlurmOptions)])
def test_every_option_is_listed_with_its_default(section: str, options: type[msgspec.Struct]) -> None:
    listed = table(section)
    fields = msgspec.structs.fields(options)
    assert list(listed) == [field.name for field in fields]
    stated = {field.name: str(field.default).lower() for field in fields if isinstance(field.default, int)}
    assert {name: listed[name] for name in stated} == stated


def test_the_example_of_a_cluster_gives_commands() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    module: dict[str, Any] = {}
    exec(code, module)
    (cluster,) = module["flagperf_clusters"]()
    allocation = cluster.allocate(1, msgspec.convert({"pods": ["a", "b"]}, cluster.options))
    assert allocation.agent_command(allocation.nodes[0], ["python3"]) == ["kubectl", "exec", "-i", "a", "--", "python3"]

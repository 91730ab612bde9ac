"""Clusters of plugins: their options, the nodes that they give and give back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from plugin_harness import HEADER, Site

from agent_scripts import ScriptAllocation
from flagperf.api import Allocation, Cluster, NoOptions
from flagperf.errors import BadInput, PluginFailed
from flagperf.fleet.reach import reach_nodes
from flagperf.plugins.installed import cluster_options
from flagperf.spec.job import RunSpec


def cluster_source(body: str = "") -> str:
    return f"""{HEADER}
import msgspec
from flagperf.api import Allocation, Cluster, Node
class Yard(Allocation):
    def __init__(self, num_nodes):
        self.nodes = tuple(Node(f"n{{index}}") for index in range(num_nodes))
    def agent_command(self, node, command):
        return ["reach", node.name, *command]
    def release(self):
        released.append(len(self.nodes))
released = []
class Yards(Cluster):
    name = "yard"
    def allocate(self, num_nodes, options):
        return Yard(num_nodes)
{body}
@hookimpl
def flagperf_clusters():
    return [Yards()]
"""


def test_nodes_are_given_back_also_after_a_failure(site: Site) -> None:
    plugins = site.add("clustertest2", cluster_source()).load()
    with pytest.raises(KeyError), plugins.allocation("yard", 3) as allocation:
        assert [node.name for node in allocation.nodes] == ["n0", "n1", "n2"]
        assert allocation.agent_command(allocation.nodes[1], ["python"]) == ["reach", "n1", "python"]
        raise KeyError("the command's own")
    assert __import__("clustertest2").released == [3]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("Yards.allocate = lambda *_: Yard(1)", "cluster 'yard' was asked for 2 nodes and gave 1"),
        ("Yards.allocate = lambda *_: [Node('a')]", "failed: allocate: TypeError: it gave list, not Allocation"),
        ("Yards.allocate = lambda *_: 1 / 0", "failed: allocate: ZeroDivisionError: division by zero"),
        ("Yard.__init__ = lambda *_: None", "cluster 'yard' gave no nodes that can be used: "),
        ("Yard.nodes = property(lambda self: ['a', 'b'], lambda *_: None)", "gave no nodes that can be used: Expected"),
    ],
)
def test_nodes_that_cannot_be_used_are_the_clusters_failure(
    site: Site, request: pytest.FixtureRequest, body: str, words: str
) -> None:
    name = f"clustertest3{request.node.callspec.indices['body']}"
    plugins = site.add(name, cluster_source(body)).load()
    with pytest.raises(PluginFailed) as caught, plugins.allocation("yard", 2):
        pass
    assert words in str(caught.value)


def test_an_agents_command_that_is_none_is_the_clusters_failure(site: Site) -> None:
    plugins = site.add("clustertest4", cluster_source("Yard.agent_command = lambda *_: 'ssh host'")).load()
    with plugins.allocation("yard", 1) as allocation, pytest.raises(PluginFailed, match="agent_command: TypeError"):
        allocation.agent_command(allocation.nodes[0], ["python"])


# --- options ----------------------------------------------------------------------------------------------------------


class Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partition: str
    minutes: int = 60
    exclusive: bool = False
    extra: tuple[str, ...] = ()


class Queued(Cluster):
    name = "queued"
    options = Queue

    def allocate(self, num_nodes: int, options: Queue) -> Allocation:
        raise BadInput("the queue is closed")


class Plain(Cluster):
    name = "plain"

    def allocate(self, num_nodes: int, options: NoOptions) -> Allocation:
        raise BadInput("it has no nodes")


def test_options_have_their_types_also_where_they_are_given_as_text() -> None:
    given = {"partition": "debug", "minutes": "5", "exclusive": "true", "extra": ["--qos=low"]}
    assert cluster_options(Queued(), given) == Queue("debug", 5, True, ("--qos=low",))
    assert cluster_options(Queued(), {"partition": "debug"}) == Queue("debug")


@pytest.mark.parametrize(
    ("cluster", "given", "words"),
    [
        (Queued(), {"partitoin": "x"}, "unknown option of cluster queued 'partitoin'; did you mean partition?"),
        (
            Queued(),
            {"partition": "x", "minutes": "soon"},
            "options of cluster queued: Expected `int`, got `str` - at `$.minutes`",
        ),
        (Queued(), {"partition": ["x"]}, "options of cluster queued: Expected `str`, got `array` - at `$.partition`"),
        (Queued(), {}, "options of cluster queued: Object missing required field `partition`"),
        (Plain(), {"hosts": "a"}, "unknown option of cluster plain 'hosts'; there are none (it has none)"),
    ],
)
def test_an_option_that_is_wrong_is_named(cluster: Cluster, given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        cluster_options(cluster, given)
    assert str(caught.value).startswith(words)


class Recording:
    """Plugins with the one cluster, and the options that it was asked with."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def cluster(self, name: str) -> Cluster:
        return Queued()

    @contextlib.contextmanager
    def allocation(self, name: str, num_nodes: int, options: dict[str, Any]) -> Iterator[Allocation]:
        self.options = options
        yield ScriptAllocation()


def options(*assignments: str, cluster: str = "queued", config: Path | None = None) -> dict[str, Any]:
    plugins: Any = Recording()
    spec = RunSpec("toy", cluster=cluster, cluster_options=assignments, config=str(config) if config else None)
    with reach_nodes(spec, plugins):
        pass
    found: dict[str, Any] = plugins.options
    return found


def test_options_of_the_command_line_go_over_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flagperf.toml").write_text('[clusters.queued]\npartition = "all"\nminutes = 5\n[clusters.other]\nx = 1\n')
    assert options() == {"partition": "all", "minutes": 5}
    found = options("partition=debug", "extra=['a', 'b=c']")
    assert found == {"partition": "debug", "minutes": 5, "extra": ["a", "b=c"]}
    assert options(cluster="local") == {}
    with pytest.raises(BadInput, match="--cluster-option takes key=value, for example partition=debug; got 'debug'"):
        options("debug")


def test_a_table_of_a_cluster_has_to_be_one(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text('[clusters]\nqueued = "node1"\n')
    with pytest.raises(BadInput, match=r"f\.toml: Expected `object`, got `str` - at `\$\.clusters"):
        options(config=file)

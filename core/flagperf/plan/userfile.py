"""flagperf.toml: the user's values for cases and options of clusters, and facts that the machine's owner states about
its environment.

[environment]
network = "InfiniBand, 200 Gb/s"

[cases.distilbert.training]
batch_size = 96

[clusters.ssh]
hosts = "node[01-16]"
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from flagperf.errors import BadInput, unknown_name
from flagperf.plugins import Plugins
from flagperf.spec import NodeFacts, RunSpec, Values, read_toml, state_environment

DEFAULT_FILE = "flagperf.toml"
TABLES = ("environment", "cases", "clusters", "container")


class UserFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    environment: dict[str, Any] = {}
    cases: dict[str, Values] = {}
    clusters: dict[str, Values] = {}
    container: Values = {}
    path: str = ""
    """Empty where there is no file."""


def read_user_file(asked: str | None) -> UserFile:
    """`--config FILE`, else ./flagperf.toml, else nothing."""
    path = Path(asked or DEFAULT_FILE)
    if asked is None and not os.path.lexists(path):  # a link to nothing is a mistake, not the absence of a file
        return UserFile()
    content = read_toml(path)
    _check_tables(content, path)
    try:
        return msgspec.structs.replace(msgspec.convert(content, UserFile), path=str(path))
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{path}: {error}; it may have [environment], [cases.NAME], [clusters.NAME] and [container]"
        ) from None


def case_file(spec: RunSpec, plugins: Plugins) -> UserFile:
    """The file that a request names; the cases in it have to exist."""
    user_file, known = read_user_file(spec.config), plugins.cases()
    for name in user_file.cases:
        if name not in known:
            raise unknown_name("case", name, known, f"(in {user_file.path}, table [cases.{name}])")
    for name in user_file.clusters:
        if name not in plugins.cluster_names():
            where = f"(in {user_file.path}, table [clusters.{name}])"
            raise unknown_name("cluster", name, plugins.cluster_names(), where)
    return user_file


def with_stated_environment(node: NodeFacts, user_file: UserFile) -> NodeFacts:
    environment = state_environment(node.environment, user_file.environment, user_file.path)
    return msgspec.structs.replace(node, environment=environment)


def _check_tables(content: dict[str, Any], path: Path) -> None:
    for table in content:
        if table not in TABLES:
            unknown = unknown_name(
                "table", table, TABLES, "(it may have [environment], [cases.NAME], [clusters.NAME] and [container])"
            )
            raise BadInput(f"{path}: {unknown}")

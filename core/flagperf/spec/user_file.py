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
from flagperf.spec.node_facts import NodeFacts, state_environment
from flagperf.spec.toml_files import read_toml
from flagperf.spec.values import Values

DEFAULT_FILE = "flagperf.toml"


class UserTables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    environment: dict[str, Any] = {}
    """Facts that could not be captured, in your words."""
    cases: dict[str, Values] = {}
    """Case -> its values, as `flagperf cases show CASE` lists them."""
    clusters: dict[str, Values] = {}
    """Cluster -> its options."""
    container: Values = {}
    """How the image of --container is run."""


TABLES = UserTables.__struct_fields__


class UserFile(UserTables, frozen=True):
    path: str = ""
    """Empty where there is no file."""


def read_user_file(asked: str | None) -> UserFile:
    """Read `--config FILE`, else ./flagperf.toml. Return an empty UserFile if neither is there."""
    path = Path(asked or DEFAULT_FILE)
    if asked is None and not os.path.lexists(path):  # a link to nothing is a mistake, not the absence of a file
        return UserFile()
    content = read_toml(path)
    tables = "it may have [environment], [cases.NAME], [clusters.NAME] and [container]"
    for table in content:
        if table not in TABLES:
            raise BadInput(f"{path}: {unknown_name('table', table, TABLES, f'({tables})')}")
    try:
        return msgspec.structs.replace(msgspec.convert(content, UserFile), path=str(path))
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}; {tables}") from None


def with_stated_environment(node: NodeFacts, user_file: UserFile) -> NodeFacts:
    environment = state_environment(node.environment, user_file.environment, user_file.path)
    return msgspec.structs.replace(node, environment=environment)

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
from collections.abc import Iterable
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


def _unknown(kind: str, name: str, known: Iterable[str], user_file: UserFile, hint: str) -> BadInput:
    where = f"(in {user_file.path}, table [{kind}s.{name}])"
    return unknown_name(kind, name, known, f"{where} {hint}" if hint else where)


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

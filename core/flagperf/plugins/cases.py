"""Case: a case that a plugin gave, with what its files say."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.api import CaseReference
from flagperf.errors import BadInput
from flagperf.plugins.load import PluginStatus
from flagperf.spec import Manifest, is_object_reference, read_manifest, read_toml, with_references


class Case(msgspec.Struct, frozen=True):
    reference: CaseReference
    manifest: Manifest
    plugin: PluginStatus


def read_case(reference: CaseReference, plugin: PluginStatus) -> Case:
    if not isinstance(reference.manifest, Path):
        raise BadInput(f"the manifest of {reference.target!r} has to be a pathlib.Path; got {reference.manifest!r}")
    if not isinstance(reference.target, str) or not is_object_reference(reference.target):
        raise BadInput(f"{reference.manifest}: its target is written module:function; got {reference.target!r}")
    from flagperf.metrics.registry import vocabulary  # not at the top: agents and workers read no case

    return Case(reference, read_manifest(reference.manifest, vocabulary()), plugin)


def with_published(case: Case) -> Case:
    from flagperf.metrics.registry import vocabulary  # not at the top, as above

    manifest = with_references(case.manifest, case.reference.manifest, vocabulary())
    return msgspec.structs.replace(case, manifest=manifest)


def intended_name(reference: CaseReference) -> str:
    """What its author calls a case that cannot be used: the name in its file, else its folder's."""
    path = Path(str(reference.manifest))
    try:
        return str(read_toml(path).get("name") or path.parent.name)
    except BadInput:
        return path.parent.name

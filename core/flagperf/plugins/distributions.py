"""Installed distributions and their entry points, read from their folders on sys.path.

importlib.metadata gives the same answer, but importing it (with email, zipfile and csv) takes longer than all else that
a short command does. It is used only for an entry of sys.path that is no folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec


class Distribution(msgspec.Struct, frozen=True):
    """`name` is lower case with hyphens. Without metadata, name and version are those of the folder, else `unknown`."""

    name: str
    version: str
    requirements: tuple[str, ...] = ()
    has_metadata: bool = True


class EntryPoint(msgspec.Struct, frozen=True):
    name: str
    value: str
    """`module` or `module:attribute`."""
    distribution: Distribution

    def load(self) -> Any:
        import importlib

        module, _, attributes = self.value.partition("[")[0].partition(":")
        loaded = importlib.import_module(module.strip())
        for attribute in filter(None, attributes.strip().split(".")):
            loaded = getattr(loaded, attribute)
        return loaded


def entry_points(group: str, path: Sequence[str] | None = None) -> list[EntryPoint]:
    """Of one group, in the order of the path. Of two distributions of one name the first counts, as for imports."""
    return [
        EntryPoint(name, value, _distribution(metadata))
        for metadata in _installed(sys.path if path is None else path)
        for name, value in _pairs(metadata.read("entry_points.txt"), group)
    ]


def without_entry_point(group: str, prefix: str, path: Sequence[str] | None = None) -> list[Distribution]:
    """Distributions whose name begins with `prefix` and that have no entry point of the group."""
    return [
        _distribution(metadata)
        for metadata in _installed(sys.path if path is None else path)
        if metadata.key.startswith(prefix) and not any(_pairs(metadata.read("entry_points.txt"), group))
    ]


def installed_version(name: str) -> str:
    """Of the distribution of this (normalised) name. LookupError where it is not installed."""
    for metadata in _installed(sys.path):
        if metadata.key == name:
            return _distribution(metadata).version
    raise LookupError(f"no metadata of {name} on sys.path: it is not installed")


# --- where they are ---------------------------------------------------------------------------------------------------


class _Folder:
    """A dist-info or egg-info folder."""

    def __init__(self, name: str, path: str) -> None:
        """`name` is that of the folder: `flagperf_acme-1.0`, perhaps with more after another hyphen."""
        key, version, *_ = [*name.split("-"), ""]
        self.key, self.version, self._path = _normalised(key), version, path

    def read(self, file: str) -> str:
        try:
            with open(f"{self._path}/{file}", encoding="utf-8", errors="replace") as opened:  # noqa: PTH123  often
                return opened.read()
        except OSError:
            return ""


class _Archived:
    """In a zip file, as importlib.metadata finds it."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self.key = self.version = "unknown"
        self.key = _distribution(self).name

    def read(self, file: str) -> str:
        return str(self._found.read_text(file) or "")


def _installed(path: Sequence[str]) -> Iterator[_Folder | _Archived]:
    seen: set[str] = set()
    for entry in path:
        for metadata in _installed_in(entry or "."):
            if metadata.key not in seen:
                seen.add(metadata.key)
                yield metadata


def _installed_in(entry: str) -> Iterator[_Folder | _Archived]:
    try:
        children = sorted(os.listdir(entry))  # noqa: PTH208  no pathlib where every millisecond counts
    except NotADirectoryError:
        import importlib.metadata

        yield from map(_Archived, importlib.metadata.distributions(path=[entry]))
        return
    except OSError:
        return
    for child in children:
        stem, _, kind = child.rpartition(".")
        if kind in ("dist-info", "egg-info"):
            yield _Folder(stem, f"{entry}/{child}")
        elif child == "EGG-INFO" and entry.endswith(".egg"):
            yield _Folder(entry.rpartition("/")[2], f"{entry}/{child}")


# --- what they say ----------------------------------------------------------------------------------------------------


def _pairs(text: str, group: str) -> Iterator[tuple[str, str]]:
    """The entry points of one group of an entry_points.txt."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == group and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def _distribution(metadata: _Folder | _Archived) -> Distribution:
    text = metadata.read("METADATA") or metadata.read("PKG-INFO")
    headers: dict[str, list[str]] = {}
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    if "name" not in headers or "version" not in headers:
        return Distribution(metadata.key, metadata.version or "unknown", has_metadata=False)
    return Distribution(_normalised(headers["name"][0]), headers["version"][0], tuple(headers.get("requires-dist", ())))


def _normalised(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")

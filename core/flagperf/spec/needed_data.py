"""[[data]] of case.toml: data that a case reads, and where people get it. `flagperf data check`, `cases show`, pages
and the case's README all take it from here. Whether the content is right is up to the case's `check_files`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

_KEY = re.compile(r"\{([A-Za-z0-9_.-]+)\}")


class NeededData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    files: tuple[str | tuple[str, ...], ...]
    """In --data-dir. A list among them: any one of these. `*` stands for any name, `{data.prefix}` for the value of
    that key."""
    url: str | tuple[str, ...] = ()
    kind: Literal["checkpoint", "dataset", "other"] = "dataset"
    """Under which link a page has it; `other`: under none."""
    take: str = ""
    """What there to take: the name of an archive, which version."""
    command: str = ""
    """What puts it into its place, or converts it; DIR is --data-dir."""
    licence: str = ""
    when: dict[str, str | bool | tuple[str, ...]] = {}
    """Key -> the value, or the values, with which the case reads it. Empty: always, if it reads any data."""
    rows: dict[str, int] = {}
    """File -> how many rows it has where it was published."""
    header: bool = False
    """The first line of its files is no row."""

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url,) if isinstance(self.url, str) else self.url

    @property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """Of every file that is needed, the names that it may have."""
        return tuple((each,) if isinstance(each, str) else each for each in self.files)

    @property
    def keys(self) -> Iterator[str]:
        """Of the case's values that it depends on."""
        yield from self.when
        for names in self.choices:
            for name in names:
                yield from _KEY.findall(name)

    def is_needed(self, values: Mapping[str, Any]) -> bool:
        """`values` are flat: key -> value."""
        wanted = ((values.get(key), each if isinstance(each, tuple) else (each,)) for key, each in self.when.items())
        return all(value in allowed for value, allowed in wanted)


def with_values(name: str, values: Mapping[str, Any]) -> str:
    """The name of a file, with what `{key}` stands for."""
    return _KEY.sub(lambda found: str(values.get(found[1], found[0])), name)

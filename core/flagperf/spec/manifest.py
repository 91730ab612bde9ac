"""case.toml: everything that is known about a case without importing its code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from flagperf.errors import BadInput
from flagperf.kinds.kind import Text
from flagperf.spec.check import problems
from flagperf.spec.toml_errors import misfit
from flagperf.spec.toml_reading import read_toml
from flagperf.spec.values import Limit, Values
from flagperf.spec.vocabulary import Vocabulary


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that the case reports."""

    name: str
    unit: str
    definition: str
    format: Literal["fraction", "loss", "one_decimal", "count"] = "fraction"
    minimum: float | None = None
    maximum: float | None = None


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metric that has to reach the value of a key, and whether missing it fails the run (exit 7)."""

    metric: str
    key: str = "evaluation.target"
    gates: bool = False


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns of the performance table and rows of the general table, by the names that docs/add-a-case.md lists."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    remarks: dict[str, Text] = {}
    titles: dict[str, Text] = {}
    """Row titles, for qualities whose name is not clear to a reader."""
    parts: tuple[str, ...] = ()
    """Further sections, by the names that docs/add-a-case.md lists."""
    parallel_library: str = ""
    """The library that distributes the work over devices, for the part `parallelism`."""
    optimisation: Text = {}
    """The method, for the part `optimisation`; its details are the values of `optimisation_keys`."""
    optimisation_keys: tuple[str, ...] = ()
    downloads: dict[Literal["checkpoint", "dataset"], str | tuple[str, ...]] = {}
    """Download links: one or several per entry, optionally prefixed with a name ("MMLU: https://...")."""

    def links(self, name: Literal["checkpoint", "dataset"]) -> tuple[str, ...]:
        found = self.downloads.get(name, ())
        return (found,) if isinstance(found, str) else found


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: Text
    values: Values = {}
    needs_data_dir: bool = False
    files: tuple[str, ...] = ()
    """The content that --data-dir must have, as text for the user."""
    published: bool = False
    """True for the configuration of the published results."""


class PublishedResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published result of this case. `values` are in the units of the metrics (bytes, fractions)."""

    vendor: str
    device: str
    nodes: int
    devices_per_node: int
    precision: str
    overrides: str
    source: str
    values: dict[str, float] = {}
    parallel: str = ""
    """TPxPPyDPz, if the case has a layout."""
    engine: str = ""
    """Inference engine."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    version: int
    kind: str
    """How it is measured: a key of flagperf.kinds.KINDS."""
    title: Text
    task: Text
    model: str
    dataset: str
    precisions: tuple[str, ...]
    default_profile: str
    page: Page
    values: Values
    profiles: dict[str, Profile]
    qualities: tuple[Quality, ...] = ()
    target: Target | None = None
    mfu_formula: str | None = None
    """Formula id of docs/metrics.md for the headline MFU."""
    sample_unit: str = "samples/s"
    """Unit of its throughput on pages."""
    counts: Literal["samples", "tokens"] = "samples"
    """What that throughput counts; it also decides the duration that MFU divides by."""
    sequence_key: str | None = None
    """The key whose value is the sequence length, for the remark of the throughput rows."""
    page_names: dict[str, str] = {}
    """Key -> its short name on published pages."""
    limits: dict[str, Limit] = {}
    requires: tuple[str, ...] = ()
    """Distributions that the worker imports, as requirement strings."""
    check_files: str | None = None
    """`module:function`, in a module that is cheap to import: (data_dir, values) -> list[DataFile]; raises BadInput."""
    estimate: str | None = None
    """`module:function`, in a module that is cheap to import: (values) -> name -> bytes, for the rank that needs most;
    used by `flagperf plan`."""
    engine: str = ""
    """Engine of an inference case, for the column `engine`."""
    references: tuple[PublishedResult, ...] = ()


def with_counts(content: dict[str, Any]) -> dict[str, Any]:
    """In manifests older than the key `counts`, the unit implied what is counted."""
    is_old = "counts" not in content and "token" in str(content.get("sample_unit", ""))
    return {**content, "counts": "tokens"} if is_old else content


def read_manifest(path: Path, vocabulary: Vocabulary) -> Manifest:
    """Read and check a case.toml. Raises BadInput for the first problem, with file, table and key."""
    content = with_counts(read_toml(path))
    try:
        manifest = msgspec.convert(content, Manifest)
    except msgspec.ValidationError:
        raise BadInput(f"{path}: {misfit(content, Manifest)}") from None
    for problem in problems(manifest, vocabulary):
        raise BadInput(f"{path}: {problem}")
    return manifest

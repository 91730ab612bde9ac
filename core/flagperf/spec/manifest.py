"""case.toml: everything that is known about a case without importing its code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from flagperf.errors import BadInput
from flagperf.kinds.kind import Text
from flagperf.spec.check import problems, reference_problems
from flagperf.spec.needed_data import NeededData
from flagperf.spec.published import PublishedResult, PublishedRows, References
from flagperf.spec.toml_errors import misfit
from flagperf.spec.toml_reading import read_toml
from flagperf.spec.values import Limit, Values
from flagperf.spec.vocabulary import Vocabulary

MANIFEST_FILE, REFERENCES_FILE = "case.toml", "references.toml"

T = TypeVar("T", bound=msgspec.Struct)


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that the case reports."""

    name: str
    unit: str
    definition: str
    format: Literal["fraction", "loss", "one_decimal", "count"] = "fraction"
    minimum: float | None = None
    maximum: float | None = None


class RowFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that is taken from a row that the case measures."""

    name: str
    title: Text
    row: str
    """Name of the row."""
    amount: Literal["flops", "bytes", "bus_bytes", "value"]
    """`flops`, `bytes` or `bus_bytes`: work per second; `value`: the measured value itself."""
    unit: Literal["TFLOPS", "TOPS", "GB/s", "GiB", "us", "share"]
    where: dict[str, str] = {}
    """Labels that the row has. Of several rows, the first."""
    over: Literal["median", "sum", "lowest", "highest"] = "median"
    """Over devices, or over what `by` tells apart."""
    by: tuple[str, ...] = ()
    """Labels that tell apart what is counted, such as pairs of devices; each by the slowest of its ranks."""
    remark: Text = {}
    headline: bool = False


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
    """Download links of a case without [[data]]: one or several per entry, optionally prefixed with a name
    ("MMLU: https://...")."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: Text
    values: Values = {}
    needs_data_dir: bool = False
    files: tuple[str, ...] = ()
    """The content that --data-dir must have, as text for the user, in a case without [[data]]."""
    published: bool = False
    """True for the configuration of the published results."""


class PublishedConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the published configuration file of a card has, where it is not what the case has."""

    device: str
    nodes: int
    devices_per_node: int
    values: dict[str, float]
    source: str


class PublishedPages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is needed to read and check published pages of the case."""

    models: tuple[str, ...]
    """What they call the model."""
    nominal_parameters: int
    """The number that they multiply by 2, 4 or 6 for MFU."""
    flops: int | None = None
    """Per token, by the case's own formula; at least so many are needed."""
    tokens_per_sample: int = 1
    """1 for a case that counts tokens."""
    columns: dict[str, str] = {}
    """Column -> metric of the case, where the names differ."""
    configurations: tuple[PublishedConfiguration, ...] = ()


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
    figures: tuple[RowFigure, ...] = ()
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
    listing: str | None = None
    """`module:function`, in a module that is cheap to import: () -> title -> rows of a table; what the case consists
    of, for `flagperf cases show`."""
    libraries_key: str | None = None
    """The key whose value lists libraries of operators, by name, see flagperf_operator_libraries."""
    engine: str = ""
    """Engine of an inference case, for the column `engine`."""
    references: tuple[PublishedResult, ...] = ()
    """Those of references.toml follow, see `with_references`."""
    published_rows: tuple[PublishedRows, ...] = ()
    """Likewise."""
    published_pages: PublishedPages | None = None
    min_devices: int = 1
    """Of all nodes together. A run on fewer is refused before anything is started."""
    data: tuple[NeededData, ...] = ()
    """What it reads from --data-dir, and where that comes from."""

    def links(self, name: Literal["checkpoint", "dataset"]) -> tuple[str, ...]:
        """Download links for pages, with a name in front where there are several."""
        own = [each for each in self.data if each.kind == name]
        if self.data:
            return tuple(f"{each.name}: {url}" if len(own) > 1 else url for each in own for url in each.urls)
        found = self.page.downloads.get(name, ())
        return (found,) if isinstance(found, str) else found

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """Names of the metrics that only this case has."""
        return (*(quality.name for quality in self.qualities), *(figure.name for figure in self.figures))


def read_manifest(path: Path, vocabulary: Vocabulary) -> Manifest:
    """Read and check a case.toml. Raises BadInput for the first problem, with file, table and key."""
    manifest = _converted(path, read_toml(path), Manifest)
    for problem in problems(manifest, vocabulary):
        raise BadInput(f"{path}: {problem}")
    return manifest


def with_references(manifest: Manifest, path: Path, vocabulary: Vocabulary) -> Manifest:
    """With the published results of the references.toml beside its case.toml, if there is one. Raises BadInput."""
    file = path.with_name(REFERENCES_FILE)
    if path.name != MANIFEST_FILE or not file.is_file():  # a folder may have several manifests of other names
        return manifest
    found = _converted(file, read_toml(file), References)
    of_file = msgspec.structs.replace(manifest, references=found.references, published_rows=found.published_rows)
    for problem in reference_problems(of_file, vocabulary):
        raise BadInput(f"{file}: {problem}")
    return msgspec.structs.replace(
        manifest,
        references=(*manifest.references, *found.references),
        published_rows=(*manifest.published_rows, *found.published_rows),
    )


def _converted(path: Path, content: dict[str, Any], into: type[T]) -> T:
    try:
        return msgspec.convert(content, into)
    except msgspec.ValidationError:
        raise BadInput(f"{path}: {misfit(content, into)}") from None

"""case.toml: everything that is known about a case without importing its code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from flagperf.kinds import Text
from flagperf.spec.published import PublishedResult, PublishedRows
from flagperf.spec.values import Limit, Values
from flagperf.units import Unit

# [[data]] of case.toml: data that a case reads, and where people get it. `flagperf data check`, `cases show`, pages
# and the case's README all take it from here. Whether the content is right is up to the case's `check_files`.


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
        """Return the names that each file that is needed may have."""
        return tuple((each,) if isinstance(each, str) else each for each in self.files)

    @property
    def keys(self) -> Iterator[str]:
        """Yield the keys of the case's values that it depends on."""
        yield from self.when
        for names in self.choices:
            for name in names:
                yield from _KEY.findall(name)

    def is_needed(self, values: Mapping[str, Any]) -> bool:
        """Return true if the case reads it with these values, which are flat: key -> value."""
        wanted = ((values.get(key), each if isinstance(each, tuple) else (each,)) for key, each in self.when.items())
        return all(value in allowed for value, allowed in wanted)


def with_values(name: str, values: Mapping[str, Any]) -> str:
    """Return the name of a file, with the values in place of `{key}`."""
    return _KEY.sub(lambda found: str(values.get(found[1], found[0])), name)


# The names that case.toml may use.


PAGE_COLUMNS = ("configuration", "precision", "parallel", "fix_hp", "engine", "loss_aligned", "mem")
"""Columns that are not metrics. Every metric and every quality of the case is a column too."""

PAGE_ROWS = (
    "task",
    "model",
    "dataset",
    "precision",
    "parallel",
    "fix_hp",
    "device",
    "engine",
    "loss_aligned",
    "mem",
    "result",
    "extra",
)
"""Rows of the general table that are not metrics."""

PAGE_PARTS = ("parallelism", "optimisation", "batch_size")
"""Optional sections of a page."""

REPORT_METRICS = ("loss_aligned",)
"""Metrics that need more than the bundle of a run. They are computed for a report."""


class Vocabulary(msgspec.Struct, frozen=True):
    """Names defined by later stages, passed to the code that reads a case.toml."""

    kinds: tuple[str, ...]
    metrics: tuple[str, ...]
    formulas: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*PAGE_COLUMNS, *self.metrics)

    @property
    def rows(self) -> tuple[str, ...]:
        return (*PAGE_ROWS, *self.metrics)


MANIFEST_FILE, REFERENCES_FILE = "case.toml", "references.toml"


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
    amount: Literal["flops", "bytes", "bus_bytes", "value", "p50", "p90", "p95", "p99"]
    """`flops`, `bytes` or `bus_bytes`: work per second; `value`: the median of the measured values; `p50` to `p99`: a
    percentile of them."""
    unit: Unit
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
    """Values of a card's published configuration file that differ from the case's own."""

    device: str
    nodes: int
    devices_per_node: int
    values: dict[str, float]
    source: str


class PublishedPages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts that are needed to read and check published pages of the case."""

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
        """Return download links for pages, with a name in front where there are several."""
        own = [each for each in self.data if each.kind == name]
        if self.data:
            return tuple(f"{each.name}: {url}" if len(own) > 1 else url for each in own for url in each.urls)
        found = self.page.downloads.get(name, ())
        return (found,) if isinstance(found, str) else found

    @property
    def own_metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics that only this case has."""
        return (*(quality.name for quality in self.qualities), *(figure.name for figure in self.figures))

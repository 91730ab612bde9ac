"""Environment, values, data, strategies, telemetry tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.messages import Lang, choose, clauses, listed, say, usable, web
from flagperf.metrics.entry import Metric, MetricEntry
from flagperf.metrics.registry import entries_of
from flagperf.report.document import (
    Block,
    Bullets,
    Code,
    Empty,
    Fact,
    Facts,
    Fold,
    Head,
    Heading,
    Link,
    Paragraph,
    Table,
    TableCell,
    Text,
)
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.result_tables import ROWS, row_remark, row_value
from flagperf.report.wording import layout, layout_ways, measured_cell, run_configuration
from flagperf.spec.node_facts import Fact as NodeFact
from flagperf.spec.node_facts import NodeFacts, absent_fact
from flagperf.spec.values import flatten, page_name

# What was read of the devices while rows were measured: the last tables of published pages of this kind.


PUBLISHED = ("power_mean", "power_max", "temperature_max", "cpu_others")
"""Listed even if they were not read, with the reason. Others only if they were."""

GROUPS = ("power", "host")


def telemetry(page: PageRuns) -> Iterator[Block]:
    entries = [entry for entry in entries_of(page.manifest) if entry.group in GROUPS and _is_shown(entry, page)]
    numbers = range(1, len(page.runs) + 1)
    of_runs = [say("this_row", page.lang, row=number) for number in numbers] if len(page.runs) > 1 else []
    heads = (page.label("head_telemetry"), *(of_runs or [page.label("head_measured")]), page.label("head_remark"))
    rows = tuple(
        (Text(choose(entry.title, page.lang)), *_cells(entry, page), Text(choose(entry.remark, page.lang)))
        for entry in entries
    )
    yield Table(tuple(map(Head, heads)), rows, page.label("telemetry"))


def _is_shown(entry: MetricEntry, page: PageRuns) -> bool:
    return entry.name in PUBLISHED or any(_has_value(recorded.run, entry.name) for recorded in page.runs)


def _has_value(run: Run, name: str) -> bool:
    metric: Metric | None = run.metric(name)
    return metric is not None and metric.value is not None


def _cells(entry: MetricEntry, page: PageRuns) -> list[TableCell]:
    unit = "" if entry.unit == "share" else entry.shown_unit or entry.unit_of(page.manifest)
    return [measured_cell(recorded.run, entry.name, entry.format, unit) for recorded in page.runs]


# The environment section: hardware and software of the nodes, printed once per distinct environment.


HARDWARE = ("machine", "accelerator", "host_link", "cpu", "network")

SOFTWARE = ("os", "kernel", "driver", "container", "docker", "framework", "packages")

Lines = tuple[tuple[str, TableCell], ...]
"""The lines of one environment: (name, cell)."""


def environment(page: PageRuns) -> Iterator[Block]:
    groups: dict[Lines, list[int]] = {}
    for index, recorded in enumerate(page.runs):
        groups.setdefault(_lines(recorded, page.lang), []).append(index)
    for lines, indices in groups.items():
        if len(groups) > 1:
            yield Paragraph(_applies_to(page, indices))
        counts = sorted({page.runs[index].run.job.devices_per_node for index in indices})
        cells = dict(lines) | {"accelerator": _accelerator(page.runs[indices[0]].run, counts, page.lang)}
        for title, names in (("hardware", HARDWARE), ("software", SOFTWARE)):
            yield Facts(
                tuple(Fact(page.label(name), cells[name]) for name in names if name in cells), page.label(title)
            )


def differing_facts(recorded: RecordedRun) -> list[str]:
    """Names of the facts in which other nodes differ from node 0, which the page shows."""
    first, *others = [_facts(node, recorded.run) for node in recorded.nodes] or [{}]
    names = {name for other in others for name in {*first, *other} if first.get(name) != other.get(name)}
    return sorted(names)


def _applies_to(page: PageRuns, indices: list[int]) -> str:
    names = [run_configuration(page.runs[index].run, page.lang) for index in indices]
    said = say("applies_to", page.lang, configurations=listed(list(dict.fromkeys(names)), page.lang))
    return page.by_rows([said if index in indices else "" for index in range(len(page.runs))])[0]


def _lines(recorded: RecordedRun, lang: Lang) -> Lines:
    facts = _facts(recorded.nodes[0], recorded.run) if recorded.nodes else {}
    names = [name for name in HARDWARE + SOFTWARE if name not in ("accelerator", "host_link")]
    lines = [(name, _fact_cell(name, facts.get(name), lang)) for name in names]
    links = [("host_link", Text(links))] if (links := _host_links(recorded.run, lang)) else []
    return (("accelerator", Text(_model(recorded.run, lang))), *links, *lines)


def _host_links(run: Run, lang: Lang) -> str:
    """Of the cards that were used, each kind once. Nothing where nobody knows."""
    found = dict.fromkeys(
        say("link_slowed", lang, link=most, now=now) if (now := device.properties.get("pcie_now")) else f"PCIe {most}"
        for node in run.job.nodes
        for device in node.devices
        if (most := device.properties.get("pcie"))
    )
    return listed(list(found), lang)


def _facts(node: NodeFacts, run: Run) -> dict[str, NodeFact]:
    """The facts of the node, including the driver and the packages."""
    vendor = next((facts for facts in node.vendors if facts.vendor == run.job.vendor), None)
    versions = dict(vendor.versions) if vendor else {}
    driver = versions.pop("driver", None)
    facts = {name: fact for name, fact in node.environment.facts.items() if name in HARDWARE + SOFTWARE}
    stated = facts.get("driver")
    facts["driver"] = NodeFact(driver) if driver else stated or absent_fact("environment.no_driver")
    python = node.environment.facts.get("python")
    if python and python.value:
        versions["python"] = python.value
    packages = ", ".join(f"{name} {version}" for name, version in {**versions, **node.environment.packages}.items())
    facts["packages"] = NodeFact(packages) if packages else absent_fact("environment.no_packages")
    return facts


def _fact_cell(name: str, fact: NodeFact | None, lang: Lang) -> TableCell:
    if fact is None or not fact.value:
        return Empty("not_measured", (usable(fact.message, fact.reason) if fact else "") or name)
    return Text(say("stated", lang, value=fact.value) if fact.how == "stated" else fact.value)


def _accelerator(run: Run, counts: list[int], lang: Lang) -> TableCell:
    used = listed([str(count) for count in counts], lang)
    return Text(say("with_counts", lang, value=_model(run, lang), counts=used))


def _model(run: Run, lang: Lang) -> str:
    device = run.job.device_model
    if device.memory_bytes is None:
        memory = say("memory_unknown", lang)
    else:
        memory = say("memory_size", lang, gib=units.gib(device.memory_bytes))
    model = f"{device.model} (simulated)" if run.simulated else device.model
    return say("accelerator", lang, model=model, memory=memory)


# The configuration of runs: every value, the layer that set it, and what the vendor or the user changed.


def settings(page: PageRuns) -> Iterator[Block]:
    """Runs with the same configuration share its tables."""
    rows = [tuple(_rows(recorded.run, page.lang)) for recorded in page.runs]
    changes = [tuple(_changes(recorded.run, page.lang)) for recorded in page.runs]
    for (all_rows, changed), numbers in page.rows_of(list(zip(rows, changes, strict=True))).items():
        mark = page.with_rows("", numbers).strip()
        if changed:
            yield Table(_heads(page.lang), changed, _titled(web("changed_settings", page.lang), mark))
        else:
            yield Paragraph(_titled(web("no_changes", page.lang), mark))
        title = _titled(web("all_settings", page.lang, count=len(all_rows)), mark)
        yield Fold(title, (Table(_heads(page.lang), all_rows),))


def _titled(text: str, mark: str) -> str:
    return f"{text} {mark}" if mark else text


def _heads(lang: Lang) -> tuple[Head, ...]:
    return tuple(Head(web(f"setting_{name}", lang)) for name in ("key", "value", "layer"))


def _rows(run: Run, lang: Lang) -> Iterator[tuple[TableCell, ...]]:
    config = run.job.config
    for key, value in sorted(flatten(config.values)):
        is_changed = key in config.deviations
        layer = config.layers.get(key, "")
        cells = (key, units.setting(value), _layer(run, layer, lang) if is_changed else layer)
        yield tuple(Text(text, strong=is_changed) for text in cells)


def _changes(run: Run, lang: Lang) -> Iterator[tuple[TableCell, ...]]:
    """With the name on published pages, where a key has one."""
    values = dict(flatten(run.job.config.values))
    for key, layer in run.job.config.deviations.items():
        name = page_name(run.manifest, key)
        shown = key if name == key else say("with_remark", lang, text=key, remark=name)
        yield Text(shown), Text(units.setting(values[key])), Text(_layer(run, layer, lang))


def _layer(run: Run, layer: str, lang: Lang) -> str:
    """Layers that change a profile are the vendor's or the user's."""
    return layer if layer in run.job.config.user_layers else web("changed_by_vendor", lang, layer=layer)


# Data, model and weights: download links, and the data files that the runs used.


DOWNLOADS: tuple[Literal["checkpoint", "dataset"], ...] = ("checkpoint", "dataset")


def downloads(page: PageRuns) -> Iterator[Block]:
    """One section per download, for training pages."""
    for name in DOWNLOADS:
        links = _links(page, name)
        if links:
            yield Heading(page.label(f"download_{name}"))
            yield Bullets(links)


def dataset(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("data_section"))
    yield Bullets((_line(page, "dataset"), *_links(page, "dataset")))


def weights(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("model_section"))
    yield from _data_tree(page)
    yield Bullets((_line(page, "model"), *_links(page, "checkpoint")))


def _links(page: PageRuns, name: Literal["checkpoint", "dataset"]) -> tuple[TableCell, ...]:
    return tuple(map(_link, page.manifest.links(name)))


def _link(text: str) -> Link:
    """Parses a URL or `name: URL`."""
    name, _, url = text.rpartition(": ")
    return Link(name or url, url)


def _line(page: PageRuns, row: str) -> Text:
    """The same text as in the general table."""
    value, remark = row_value(ROWS[row], page), row_remark(ROWS[row], page)
    return Text(say("with_remark", page.lang, text=value, remark=remark) if remark else value)


# --- the folder of data ---------------------------------------------------------------------------------------------

Tree = dict[str, Any]
"""Name -> its content; empty for a file."""


def _data_tree(page: PageRuns) -> Iterator[Block]:
    """The files in --data-dir. Nothing for runs without data files."""
    paths = sorted({file.path for recorded in page.runs for file in recorded.run.job.data_files})
    if paths:
        yield Code("\n".join(_branches(_tree(paths))))


def _tree(paths: Sequence[str]) -> Tree:
    tree: Tree = {}
    for path in paths:
        below = tree
        for name in " ".join(path.split()).split("/"):
            below = below.setdefault(name, {})
    return tree


def _branches(tree: Mapping[str, Tree]) -> Iterator[str]:
    names = list(tree)
    for name in names:
        is_last = name == names[-1]
        yield ("└── " if is_last else "├── ") + name
        yield from (("    " if is_last else "│   ") + line for line in _branches(tree[name]))


# Parallelism, optimisation and batch sizes, for cases that list them in page.parts. The values come from the resolved
# configurations of the runs.


Words = Callable[[Run, Lang], str]


def strategies(page: PageRuns) -> Iterator[Block]:
    """Parallelism and optimisation, if page.parts lists them."""
    for part, names in STRATEGIES.items():
        if part in page.manifest.page.parts:
            facts = tuple(Fact(page.label(name), Text(_text(page, LINES[name]))) for name in names)
            yield Facts(facts, page.label(part))


def batch_sizes(page: PageRuns) -> Iterator[Block]:
    if "batch_size" in page.manifest.page.parts:
        items = [Text(say(name, page.lang, value=_values(page, value))) for name, value in BATCH.items()]
        yield Bullets(tuple(items), page.label("batch_size"), numbered=True)


def _text(page: PageRuns, words: Words) -> str:
    return clauses(page.by_rows([words(recorded.run, page.lang) for recorded in page.runs]), page.lang)


def _values(page: PageRuns, value: Callable[[Run], str]) -> str:
    return page.values([value(recorded.run) for recorded in page.runs])


def _number(run: Run, key: str | None, default: int = 1) -> int:
    value = dict(flatten(run.job.config.values)).get(key or "", default)
    return value if isinstance(value, int) else default


def _ways(run: Run) -> dict[str, int]:
    return dict(zip(("tensor_parallel", "pipeline_parallel", "data_parallel"), layout_ways(run), strict=True))


def _technique(run: Run, lang: Lang) -> str:
    used = [say(name, lang) for name, ways in _ways(run).items() if ways > 1]
    return listed(used, lang) or say("none", lang)


def _library(run: Run, lang: Lang) -> str:
    return (run.job.world_size > 1 and run.manifest.page.parallel_library) or say("none", lang)


def _layout(run: Run, lang: Lang) -> str:
    return say("none", lang) if run.job.world_size == 1 else layout(run)


def _method(run: Run, lang: Lang) -> str:
    return choose(run.manifest.page.optimisation, lang) or say("none", lang)


def _details(run: Run, lang: Lang) -> str:
    values = dict(flatten(run.job.config.values))
    keys = [key for key in run.manifest.page.optimisation_keys if values.get(key, []) != []]
    found = [f"{key}={_setting(values[key])}" for key in keys]
    return listed(found, lang) or say("none", lang)


def _setting(value: object) -> str:
    return "+".join(map(units.setting, value)) if isinstance(value, list) else units.setting(value)


def _local_batch(run: Run) -> int:
    return _number(run, "training.batch_size")


def _accumulated(run: Run) -> int:
    return _number(run, "training.accumulate")


def _global_batch(run: Run) -> str:
    factors = (_local_batch(run), _accumulated(run), _ways(run)["data_parallel"])
    return f"{' x '.join(map(str, factors))} = {math.prod(factors)}"


LINES: dict[str, Words] = {
    "parallel_technique": _technique,
    "parallel_library": _library,
    "parallel_details": _layout,
    "optimisation_method": _method,
    "optimisation_details": _details,
}

STRATEGIES = {
    "parallelism": ("parallel_technique", "parallel_library", "parallel_details"),
    "optimisation": ("optimisation_method", "optimisation_details"),
}

BATCH: dict[str, Callable[[Run], str]] = {
    "local_batch": lambda run: str(_local_batch(run)),
    "sequence": lambda run: str(_number(run, run.manifest.sequence_key)),
    "accumulated": lambda run: str(_accumulated(run)),
    "global_batch": _global_batch,
}

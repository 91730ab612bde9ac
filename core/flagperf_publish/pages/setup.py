"""What a page says of the setup of its runs: environment, configuration, data, strategies, and telemetry."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.messages import Lang, choose, clauses, listed, say, usable, web
from flagperf.metrics.registry import entries_of
from flagperf.report.document import (
    Block,
    Bullets,
    Code,
    Empty,
    Facts,
    Fold,
    Head,
    Heading,
    LabelledCell,
    Link,
    Paragraph,
    Table,
    TableCell,
    Text,
)
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.result_tables import ROWS, row_remark, row_value
from flagperf.report.wording import layout, layout_ways, measured_cell, run_configuration
from flagperf.spec.node_facts import Fact, NodeFacts, absent_fact
from flagperf.spec.values import flatten, page_name

PUBLISHED = ("power_mean", "power_max", "temperature_max", "cpu_others")
"""Listed even if they were not read, with the reason. Others only if they were."""

GROUPS = ("power", "host")


def telemetry(page: PageRuns) -> Iterator[Block]:
    """Yield what was read of the devices while rows were measured."""
    rows = []
    for entry in entries_of(page.manifest):
        metrics = [recorded.run.metric(entry.name) for recorded in page.runs]
        is_shown = entry.name in PUBLISHED or any(metric and metric.value is not None for metric in metrics)
        if entry.group in GROUPS and is_shown:
            unit = "" if entry.unit == "share" else entry.shown_unit or entry.unit_of(page.manifest)
            cells = [measured_cell(recorded.run, entry.name, entry.format, unit) for recorded in page.runs]
            rows.append((Text(choose(entry.title, page.lang)), *cells, Text(choose(entry.remark, page.lang))))
    of_runs = [page.mark(number) for number in range(1, len(page.runs) + 1)]
    of_runs = of_runs if len(of_runs) > 1 else [page.label("head_measured")]
    heads = (page.label("head_telemetry"), *of_runs, page.label("head_remark"))
    yield Table(tuple(map(Head, heads)), tuple(rows), page.label("telemetry"))


# --- the environment: hardware and software of the nodes, once for each that differs --------------------------------

HARDWARE = ("machine", "accelerator", "host_link", "cpu", "network")

SOFTWARE = ("os", "kernel", "driver", "container", "docker", "framework", "packages")

FACTS = tuple(name for name in HARDWARE + SOFTWARE if name not in ("accelerator", "host_link"))

Lines = tuple[tuple[str, TableCell], ...]
"""The lines of one environment: name and cell."""


def environment(page: PageRuns) -> Iterator[Block]:
    groups: dict[Lines, list[int]] = {}
    for index, recorded in enumerate(page.runs):
        groups.setdefault(_lines(recorded, page.lang), []).append(index)
    for lines, indices in groups.items():
        if len(groups) > 1:
            names = [run_configuration(page.runs[index].run, page.lang) for index in indices]
            said = say("applies_to", page.lang, configurations=listed(list(dict.fromkeys(names)), page.lang))
            yield Paragraph(page.by_rows([said if index in indices else "" for index in range(len(page.runs))])[0])
        counts = sorted({page.runs[index].run.job.devices_per_node for index in indices})
        used = listed([str(count) for count in counts], page.lang)
        model = _model(page.runs[indices[0]].run, page.lang)
        cells = dict(lines) | {"accelerator": Text(say("with_counts", page.lang, value=model, counts=used))}
        for title, of_title in (("hardware", HARDWARE), ("software", SOFTWARE)):
            facts = tuple(LabelledCell(page.label(name), cells[name]) for name in of_title if name in cells)
            yield Facts(facts, page.label(title))


def differing_facts(recorded: RecordedRun) -> list[str]:
    """Return the names of the facts in which other nodes differ from node 0, which the page shows."""
    first, *others = [_facts(node, recorded.run) for node in recorded.nodes] or [{}]
    names = {name for other in others for name in {*first, *other} if first.get(name) != other.get(name)}
    return sorted(names)


def _lines(recorded: RecordedRun, lang: Lang) -> Lines:
    run = recorded.run
    lines: list[tuple[str, TableCell]] = [("accelerator", Text(_model(run, lang)))]
    links: dict[str, None] = {}  # of the devices that were used, each kind once
    for device in (device for node in run.job.nodes for device in node.devices):
        most, now = device.properties.get("pcie"), device.properties.get("pcie_now")
        if most:
            links[say("link_slowed", lang, link=most, now=now) if now else f"PCIe {most}"] = None
    if links:
        lines.append(("host_link", Text(listed(list(links), lang))))
    facts = _facts(recorded.nodes[0], run) if recorded.nodes else {}
    for name in FACTS:
        fact = facts.get(name)
        if fact is None or not fact.value:
            cell: TableCell = Empty("not_measured", (usable(fact.message, fact.reason) if fact else "") or name)
        else:
            cell = Text(say("stated", lang, value=fact.value) if fact.how == "stated" else fact.value)
        lines.append((name, cell))
    return tuple(lines)


def _facts(node: NodeFacts, run: Run) -> dict[str, Fact]:
    """Return the facts of a node, with the driver and the packages."""
    vendor = next((facts for facts in node.vendors if facts.vendor == run.job.vendor), None)
    versions = dict(vendor.versions) if vendor else {}
    driver = versions.pop("driver", None)
    facts = {name: fact for name, fact in node.environment.facts.items() if name in HARDWARE + SOFTWARE}
    stated = facts.get("driver")
    facts["driver"] = Fact(driver) if driver else stated or absent_fact("environment.no_driver")
    python = node.environment.facts.get("python")
    if python and python.value:
        versions["python"] = python.value
    packages = ", ".join(f"{name} {version}" for name, version in {**versions, **node.environment.packages}.items())
    facts["packages"] = Fact(packages) if packages else absent_fact("environment.no_packages")
    return facts


def _model(run: Run, lang: Lang) -> str:
    device = run.job.device_model
    if device.memory_bytes is None:
        memory = say("memory_unknown", lang)
    else:
        memory = say("memory_size", lang, gib=units.gib(device.memory_bytes))
    model = f"{device.model} (simulated)" if run.simulated else device.model
    return say("accelerator", lang, model=model, memory=memory)


# --- the configuration: every value, the layer that set it, and what the vendor or the user changed -------------------


def settings(page: PageRuns) -> Iterator[Block]:
    """Yield the tables of each configuration. Runs with the same one share its tables."""
    heads = tuple(Head(web(f"setting_{name}", page.lang)) for name in ("key", "value", "layer"))
    tables = [_setting_rows(recorded.run, page.lang) for recorded in page.runs]
    for (all_rows, changed), numbers in page.rows_of(tables).items():
        mark = page.with_rows("", numbers).strip()
        if changed:
            yield Table(heads, changed, f"{web('changed_settings', page.lang)} {mark}".strip())
        else:
            yield Paragraph(f"{web('no_changes', page.lang)} {mark}".strip())
        title = f"{web('all_settings', page.lang, count=len(all_rows))} {mark}".strip()
        yield Fold(title, (Table(heads, all_rows),))


SettingRows = tuple[tuple[TableCell, ...], ...]


def _setting_rows(run: Run, lang: Lang) -> tuple[SettingRows, SettingRows]:
    """Return the rows of all settings, and of those that the vendor or the user changed in the profile."""
    config = run.job.config
    values = dict(sorted(flatten(config.values)))
    layers = {
        key: layer if layer in config.user_layers else web("changed_by_vendor", lang, layer=layer)
        for key, layer in config.deviations.items()
    }
    rows = []
    for key, value in values.items():
        cells = (key, units.setting(value), layers.get(key, config.layers.get(key, "")))
        rows.append(tuple(Text(text, strong=key in layers) for text in cells))
    changed = []
    for key, layer in layers.items():
        name = page_name(run.manifest, key)  # on published pages
        shown = key if name == key else say("with_remark", lang, text=key, remark=name)
        changed.append((Text(shown), Text(units.setting(values[key])), Text(layer)))
    return tuple(rows), tuple(changed)


# --- data, model and weights: download links, and the data files that the runs used -----------------------------------

Download = Literal["checkpoint", "dataset"]

DOWNLOADS: tuple[Download, ...] = ("checkpoint", "dataset")


def downloads(page: PageRuns) -> Iterator[Block]:
    """Yield a section for each download, for training pages."""
    for name in DOWNLOADS:
        links = tuple(_links(page, name))
        if links:
            yield Heading(page.label(f"download_{name}"))
            yield Bullets(links)


def dataset(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("data_section"))
    yield Bullets((_line(page, "dataset"), *_links(page, "dataset")))


def weights(page: PageRuns) -> Iterator[Block]:
    yield Heading(page.label("model_section"))
    paths = sorted({file.path for recorded in page.runs for file in recorded.run.job.data_files})
    tree: Tree = {}
    for path in paths:
        below = tree
        for name in " ".join(path.split()).split("/"):
            below = below.setdefault(name, {})
    if tree:
        yield Code("\n".join(_branches(tree)))
    yield Bullets((_line(page, "model"), *_links(page, "checkpoint")))


Tree = dict[str, Any]
"""The files in --data-dir: name -> its content; empty for a file."""


def _branches(tree: Mapping[str, Tree]) -> Iterator[str]:
    names = list(tree)
    for name in names:
        is_last = name == names[-1]
        yield ("└── " if is_last else "├── ") + name
        yield from (("    " if is_last else "│   ") + line for line in _branches(tree[name]))


def _links(page: PageRuns, download: Download) -> Iterator[Link]:
    """Yield the links of a download, each written as a URL or as `name: URL`."""
    for text in page.manifest.links(download):
        name, _, url = text.rpartition(": ")
        yield Link(name or url, url)


def _line(page: PageRuns, row: str) -> Text:
    """Return the text that the general table has too."""
    value, remark = row_value(ROWS[row], page), row_remark(ROWS[row], page)
    return Text(say("with_remark", page.lang, text=value, remark=remark) if remark else value)


# --- parallelism, optimisation and batch sizes, for cases that list them in page.parts --------------------------------

STRATEGIES = {
    "parallelism": ("parallel_technique", "parallel_library", "parallel_details"),
    "optimisation": ("optimisation_method", "optimisation_details"),
}


def strategies(page: PageRuns) -> Iterator[Block]:
    lines = [_strategy_lines(recorded.run, page.lang) for recorded in page.runs]
    for part, names in STRATEGIES.items():
        if part in page.manifest.page.parts:
            texts = {name: clauses(page.by_rows([of_run[name] for of_run in lines]), page.lang) for name in names}
            yield Facts(
                tuple(LabelledCell(page.label(name), Text(text)) for name, text in texts.items()), page.label(part)
            )


def _strategy_lines(run: Run, lang: Lang) -> dict[str, str]:
    none, manifest_page, is_parallel = say("none", lang), run.manifest.page, run.job.world_size > 1
    ways = zip(("tensor_parallel", "pipeline_parallel", "data_parallel"), layout_ways(run), strict=True)
    values = dict(flatten(run.job.config.values))
    details = []
    for key in manifest_page.optimisation_keys:
        value = values.get(key, [])
        if value != []:
            shown = "+".join(map(units.setting, value)) if isinstance(value, list) else units.setting(value)
            details.append(f"{key}={shown}")
    return {
        "parallel_technique": listed([say(name, lang) for name, count in ways if count > 1], lang) or none,
        "parallel_library": (is_parallel and manifest_page.parallel_library) or none,
        "parallel_details": layout(run) if is_parallel else none,
        "optimisation_method": choose(manifest_page.optimisation, lang) or none,
        "optimisation_details": listed(details, lang) or none,
    }


def batch_sizes(page: PageRuns) -> Iterator[Block]:
    if "batch_size" not in page.manifest.page.parts:
        return
    sizes: dict[str, list[str]] = {}
    for recorded in page.runs:
        run, values = recorded.run, dict(flatten(recorded.run.job.config.values))
        keys = ("training.batch_size", run.manifest.sequence_key, "training.accumulate")
        found = [values.get(key or "", 1) for key in keys]
        local, sequence, accumulated = (value if isinstance(value, int) else 1 for value in found)
        factors = (local, accumulated, layout_ways(run)[2])
        of_run = {
            "local_batch": str(local),
            "sequence": str(sequence),
            "accumulated": str(accumulated),
            "global_batch": f"{' x '.join(map(str, factors))} = {math.prod(factors)}",
        }
        for name, text in of_run.items():
            sizes.setdefault(name, []).append(text)
    items = [Text(say(name, page.lang, value=page.values(texts))) for name, texts in sizes.items()]
    yield Bullets(tuple(items), page.label("batch_size"), numbered=True)

"""The environment section: what the nodes said of themselves, once for every distinct environment."""

from __future__ import annotations

from flagperf import units
from flagperf.report.cells import Cell, empty
from flagperf.report.markdown import Notes, cell, escape
from flagperf.report.page_runs import PageRuns
from flagperf.report.texts import Lang, label, listed, say
from flagperf.report.words import run_configuration
from flagperf.spec import Fact, NodeFacts
from flagperf.store.run import RecordedRun, Run

HARDWARE = ("machine", "accelerator", "cpu", "network")
SOFTWARE = ("os", "kernel", "driver", "container", "docker", "framework", "packages")

Lines = tuple[tuple[str, Cell], ...]
"""The lines of one environment by their names."""


def environment(page: PageRuns, notes: Notes) -> list[str]:
    """Blocks of Markdown."""
    groups: dict[Lines, list[int]] = {}
    for index, recorded in enumerate(page.runs):
        groups.setdefault(_lines(recorded, page.lang), []).append(index)
    blocks = []
    for lines, indices in groups.items():
        if len(groups) > 1:
            blocks.append(escape(_applies_to(page, indices)))
        counts = sorted({page.runs[index].run.job.devices_per_node for index in indices})
        blocks.append(_list(page, dict(lines), counts, notes))
    return blocks


def differing_facts(recorded: RecordedRun) -> list[str]:
    """In what the other nodes' environments differ from the one that the page shows."""
    first, *others = [_facts(node, recorded.run) for node in recorded.nodes] or [{}]
    names = {name for other in others for name in {*first, *other} if first.get(name) != other.get(name)}
    return sorted(names)


def _applies_to(page: PageRuns, indices: list[int]) -> str:
    texts = [""] * len(page.runs)
    names = [run_configuration(page.runs[index].run, page.lang) for index in indices]
    for index in indices:
        texts[index] = say("applies_to", page.lang, configurations=listed(list(dict.fromkeys(names)), page.lang))
    return page.by_rows(texts)[0]


def _list(page: PageRuns, lines: dict[str, Cell], counts: list[int], notes: Notes) -> str:
    text = []
    for section, names in (("hardware", HARDWARE), ("software", SOFTWARE)):
        text.append("- ##### " + label(section, page.lang, page.manifest.kind))
        for name in names:
            value = cell(lines[name], notes, page.lang)
            if name == "accelerator":
                value = _with_counts(value, counts, page.lang)
            title = label(name, page.lang, page.manifest.kind)
            text.append("  - " + say("line", page.lang, label=title, value=value))
    return "\n".join(text)


def _lines(recorded: RecordedRun, lang: Lang) -> Lines:
    facts = _facts(recorded.nodes[0], recorded.run) if recorded.nodes else {}
    names = [name for name in HARDWARE + SOFTWARE if name != "accelerator"]
    lines = [(name, _fact_cell(name, facts.get(name), lang)) for name in names]
    return (("accelerator", _accelerator(recorded.run, lang)), *lines)


def _facts(node: NodeFacts, run: Run) -> dict[str, Fact]:
    """The lines that come from the node, the driver's and the packages' included."""
    vendor = next((facts for facts in node.vendors if facts.vendor == run.job.vendor), None)
    versions = dict(vendor.versions) if vendor else {}
    driver = versions.pop("driver", None)
    facts = {name: fact for name, fact in node.environment.facts.items() if name in HARDWARE + SOFTWARE}
    stated = facts.get("driver")
    facts["driver"] = Fact(driver) if driver else stated or Fact(None, "absent", "no_driver")
    python = node.environment.facts.get("python")
    if python and python.value:
        versions["python"] = python.value
    packages = ", ".join(f"{name} {version}" for name, version in {**versions, **node.environment.packages}.items())
    facts["packages"] = Fact(packages) if packages else Fact(None, "absent", "no_packages")
    return facts


def _fact_cell(name: str, fact: Fact | None, lang: Lang) -> Cell:
    if fact is None or not fact.value:
        return empty("not_measured", (fact.reason if fact else "") or name)
    return Cell(say("stated", lang, value=fact.value) if fact.how == "stated" else fact.value)


def _accelerator(run: Run, lang: Lang) -> Cell:
    device = run.job.device_model
    if device.memory_bytes is None:
        memory = say("memory_unknown", lang)
    else:
        memory = say("memory_size", lang, gib=units.gib(device.memory_bytes))
    model = f"{device.model} (simulated)" if run.simulated else device.model
    return Cell(say("accelerator", lang, model=model, memory=memory))


def _with_counts(accelerator: str, counts: list[int], lang: Lang) -> str:
    return say("with_counts", lang, value=accelerator, counts=listed([str(count) for count in counts], lang))

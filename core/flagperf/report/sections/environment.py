"""The environment section: hardware and software of the nodes, printed once per distinct environment."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf import units
from flagperf.messages import usable
from flagperf.report.document import Block, Empty, Fact, Facts, Paragraph, TableCell, Text
from flagperf.report.sections.naming import run_configuration
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import Lang, listed, say
from flagperf.spec import Fact as NodeFact
from flagperf.spec import NodeFacts, absent_fact
from flagperf.store.run import RecordedRun, Run

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

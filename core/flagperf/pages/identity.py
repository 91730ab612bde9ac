"""Checks of whose card a page is about, and of how many."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flagperf.pages.cards import Cards, device_lines
from flagperf.pages.finding import PageFinding, ResultContext, finding
from flagperf.pages.quantities import layout
from flagperf.pages.source import SourcePage
from flagperf.pages.words import folded, named, words
from flagperf.plausibility.rules import Rule

_RELEASE = re.compile(r"(?:centos|rhel|red hat|rocky|alma|anolis|openeuler)\D{0,20}(\d{1,2})", re.IGNORECASE)
_KERNEL = re.compile(r"\.el(\d{1,2})")
_NUMBERED = re.compile(r"(\d+)\.\s")


def title_lines(page: SourcePage) -> list[tuple[int, str]]:
    """Headings about the vendor's cards, and bullets that name the vendor."""
    subjects = tuple(map(folded, words().titles["subject"]))
    headings = [(each.line, each.text) for each in page.headings if any(word in folded(each.text) for word in subjects)]
    return [
        *headings,
        *((fact.line, fact.value) for fact in page.facts if named(fact.key, words().facts) == "vendor"),
    ]


VENDOR_DIFFERS = Rule(
    "vendor_differs",
    of=("page",),
    effect="reported",
    published=(
        "a page of K100 cards titled Nvidia GPU: training/dcu/glm-pytorch/README.md; 10 of 126 training pages"
        " name another vendor's chip"
    ),
)


def vendor_differs(page: SourcePage, cards: Cards, named_cards: list[tuple[int, str]]) -> Iterator[PageFinding]:
    """`named_cards` are the lines and texts that name cards. Only a vendor of all of them is taken for theirs."""
    owners = {card.vendor for _, text in named_cards for card in cards.cards_in(text)}
    if len(owners) != 1:
        return
    owner = owners.pop()
    line, text = next((line, text) for line, text in named_cards if cards.cards_in(text))
    for at, title in title_lines(page):
        titled = cards.vendors_in(title)
        if titled and owner not in titled:
            params = {"title": title, "vendors": titled, "device": text, "line": line, "owner": owner}
            yield finding(VENDOR_DIFFERS, at, "lint.vendor_differs", **params)


def named_cards(context: ResultContext) -> list[tuple[int, str]]:
    stated = context.page.stated("device")
    shapes = [(row.line, row.configuration.device) for row in context.page.table.rows if row.configuration]
    found = [*device_lines(context.page.source), *([(stated.line, stated.value)] if stated else []), *shapes]
    return list({text: (line, text) for line, text in reversed(found) if text}.values())[::-1]


DEVICES_DIFFER = Rule(
    "devices_differ",
    of=("page",),
    effect="reported",
    published="K100 in the rows, DCU Z100L as the short name: training/dcu/glm-pytorch/README.md",
)


def devices_differ(context: ResultContext) -> Iterator[PageFinding]:
    """Names of cards that are not the first one's. A name that nobody knows is looked for among the letters of the
    others."""
    lines = named_cards(context)
    known = [(line, text, {card.name for card in context.cards.cards_in(text)}) for line, text in lines]
    first = next(((line, text, names) for line, text, names in known if names), None)
    for line, text, names in known:
        if first is not None and names and not names & first[2]:
            params = {"device": text, "other": first[1], "line": first[0]}
            yield finding(DEVICES_DIFFER, line, "lint.devices_differ", **params)
    others = " ".join(text for _, text in device_lines(context.page.source)).lower()
    for row in context.page.table.rows:
        device = row.configuration.device if row.configuration else ""
        if device and others and not context.cards.cards_in(device) and device.lower() not in others:
            yield finding(DEVICES_DIFFER, row.line, "lint.devices_differ", device=device, other=others, line=0)


CARD_COUNT = Rule(
    "card_count",
    of=("page",),
    effect="reported",
    published="two machines of 8 cards, 2x8, called 8 cards: training/nvidia/distilbert-pytorch/README.md",
)


def card_count(context: ResultContext) -> Iterator[PageFinding]:
    for row in context.page.table.rows:
        shape = row.configuration
        if shape is None:
            continue
        is_wrong = shape.said_cards not in (None, shape.cards) or shape.said_nodes not in (None, shape.nodes)
        if is_wrong:
            said = {"nodes": shape.said_nodes or shape.nodes, "said": shape.said_cards or shape.cards}
            params = {"shape": f"{shape.nodes}x{shape.devices_per_node}", "cards": shape.cards, **said}
            yield finding(
                CARD_COUNT,
                row.line,
                "lint.card_count",
                text=row.text("configuration") or row.text("resources"),
                **params,
            )


PARALLEL_PRODUCT = Rule(
    "parallel_product",
    of=("page",),
    effect="reported",
    published=(
        "TP8PP4DP1 on what the words call one machine with 8 cards: training/nvidia/llama2_70B-megatron/README.md"
    ),
)


def parallel_product(context: ResultContext) -> Iterator[PageFinding]:
    for row in context.page.table.rows:
        found = layout(row.text("parallel"))
        if found is None or row.configuration is None:
            continue
        product = found[0] * found[1] * found[2]
        if product != row.configuration.cards:
            params = {"layout": row.text("parallel"), "product": product, "cards": row.configuration.cards}
            yield finding(PARALLEL_PRODUCT, row.line, "lint.parallel_product", **params)


OS_AND_KERNEL_DIFFER = Rule(
    "os_and_kernel_differ",
    of=("page",),
    effect="reported",
    published="CentOS 7.6 with a kernel of el8: training/dcu/glm-pytorch/README.md",
)


def os_and_kernel_differ(page: SourcePage) -> Iterator[PageFinding]:
    facts = {named(fact.key, words().facts): fact for fact in page.facts}
    system, kernel = facts.get("os"), facts.get("kernel")
    if system is None or kernel is None:
        return
    release, built_for = _RELEASE.search(system.value), _KERNEL.search(kernel.value)
    if release and built_for and release[1] != built_for[1]:
        params = {"os": system.value, "kernel": kernel.value, "line": system.line}
        yield finding(OS_AND_KERNEL_DIFFER, kernel.line, "lint.os_and_kernel_differ", **params)


EMPTY_FACTS = Rule(
    "empty_facts",
    of=("page",),
    effect="reported",
    published="CPU and network without a word: training/dcu/glm-pytorch/README.md",
)


def empty_facts(page: SourcePage) -> Iterator[PageFinding]:
    """Of known keys: other bullets may be headings of their own."""
    empty = [fact for fact in page.facts if not fact.value and not fact.has_children]
    if empty:
        params = {"names": [fact.key for fact in empty], "lines": [fact.line for fact in empty]}
        yield finding(EMPTY_FACTS, empty[0].line, "lint.empty_facts", **params)


DUPLICATE_SECTION = Rule(
    "duplicate_section",
    of=("page",),
    effect="reported",
    published="two sections numbered 2: inference/benchmarks/Aquila_33b/README.md",
)


def duplicate_section(page: SourcePage) -> Iterator[PageFinding]:
    seen: dict[tuple[int, str], int] = {}
    for heading in page.headings:
        found = _NUMBERED.match(heading.text)
        key = (heading.level, found[1] if found else "")
        if found and key in seen:
            yield finding(DUPLICATE_SECTION, heading.line, "lint.duplicate_section", number=found[1], line=seen[key])
        elif found:
            seen[key] = heading.line

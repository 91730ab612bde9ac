"""Checks of cells, identity, MFU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

from flagperf import units
from flagperf.messages import message
from flagperf.plausibility.doubts import SCALING_OVER_100
from flagperf.plausibility.row_checks import OVER_CAPACITY, SHARE_NOT_POSITIVE
from flagperf.plausibility.rules import Rule, explaining_row, scaling
from flagperf.plausibility.run_checks import (
    ABOVE_PEAK,
    MFU_DOES_NOT_FOLLOW,
    ORDERED,
    OUT_OF_RANGE,
    TF32_CALLED_FP32,
    THROUGHPUT_ORDER,
    TOTAL_IS_NOT_CAPACITY,
    UTILISATION_OVER_100,
)
from flagperf.spec.manifest import Manifest, PublishedPages
from flagperf.units import percent
from flagperf_publish.published.findings import (
    CARD_COUNT,
    EMPTY_CELLS,
    PRECISION_DIFFERS,
    UNREAD_CELL,
    PageFinding,
    Recomputed,
    finding,
)
from flagperf_publish.published.page_cards import Card, Cards, device_lines
from flagperf_publish.published.page_source import Quantity, SourcePage, folded, layout, memory, named, words
from flagperf_publish.published.result_pages import ResultPage, ResultRow, column_of, mentions, published_values

# Checks of the cells of a page of results: empty, unread, out of order, not what the page or the case says.


_FILE = re.compile(r"[A-Za-z0-9_.-]{1,80}\.(?:py|json|ya?ml|toml|sh)")

RAGGED_ROW = Rule(
    "ragged_row",
    of=("page",),
    effect="reported",
    published=(
        "a sentence directly below the table, which Markdown shows as a row: training/dcu/glm-pytorch/README.md"
    ),
)


def odd_rows(context: ResultContext) -> Iterator[PageFinding]:
    heads = len(context.page.table.heads)
    for row in context.page.table.odd_rows:
        text = " ".join(row.cells)[:80]
        code = "lint.glued_line" if row.is_glued else "lint.ragged_row"
        yield finding(RAGGED_ROW, row.line, code, text=text, cells=len(row.cells), heads=heads)


def empty_cells(context: ResultContext) -> Iterator[PageFinding]:
    cells = [cell for row in context.page.table.rows for cell in row.results]
    empty = [cell for cell in cells if cell.is_empty and not cell.is_noted]
    if empty:
        params = {"count": len(empty), "all": len(cells), "lines": sorted({cell.line for cell in empty})}
        yield finding(EMPTY_CELLS, empty[0].line, "lint.empty_cells", **params)


def unread_cells(context: ResultContext) -> Iterator[PageFinding]:
    for row in context.page.table.rows:
        for cell in row.results:
            if not cell.is_empty and cell.quantity is None:
                yield finding(UNREAD_CELL, cell.line, "lint.unread_cell", column=cell.column, text=cell.text)
        shape = row.cells.get("configuration")
        if shape is not None and not shape.is_empty and row.configuration is None:
            yield finding(UNREAD_CELL, row.line, "lint.unread_cell", column=shape.column, text=shape.text)


LIST_ROW_MISSING = Rule(
    "list_row_missing",
    of=("page",),
    effect="reported",
    published="a column MFU that the list of metrics lacks: inference/benchmarks/Aquila_33b/README.md",
)

COLUMN_MISSING = Rule(
    "column_missing",
    of=("page",),
    effect="reported",
    published="a list that points to columns which the table lacks: training/nvidia",
)


def list_rows(context: ResultContext) -> Iterator[PageFinding]:
    """Columns without an entry in the list of metrics, and entries without a column."""
    page = context.page
    if not page.general:
        return
    listed = {column_of(entry.column or entry.value, page.table.columns): entry for entry in page.general}
    by_name = {_bare(entry.column or entry.value) for entry in page.general}
    for head, column in zip(page.table.heads, page.table.columns, strict=True):
        is_listed = column in listed or _bare(head) in by_name
        if not is_listed and column not in ("", "configuration", "engine"):
            yield finding(LIST_ROW_MISSING, page.table.line, "lint.list_row_missing", column=head.strip("*"))
    known = {*page.table.columns, *map(_bare, page.table.heads)}
    for column, entry in listed.items():
        if entry.column and column not in known and _bare(entry.column) not in known:
            yield finding(COLUMN_MISSING, entry.line, "lint.column_missing", name=entry.name, column=entry.column)


def _bare(text: str) -> str:
    return re.split(r"[(（]", text)[0].strip(" *\\").lower()


def throughput_order(context: ResultContext) -> Iterator[PageFinding]:
    for row in context.page.table.rows:
        for higher, lower in ORDERED:
            more, less = row.amount(higher), row.amount(lower)
            if more is not None and less is not None and more < less:
                params = {"higher": higher, "lower": lower, "more": f"{more:g}", "less": f"{less:g}"}
                yield finding(THROUGHPUT_ORDER, row.line, "doubt.throughput_order", **params)


def memory_cells(context: ResultContext) -> Iterator[PageFinding]:
    for row in context.page.table.rows:
        cell = row.cells.get("mem")
        found = memory(cell.text) if cell is not None else None
        if found is None:
            continue
        used, total = (each.value for each in found)
        if not 0 < used <= total:
            params = {"what": "mem", "used": f"{used:g}", "total": f"{total:g}"}
            yield finding(OVER_CAPACITY, row.line, "doubt.over_capacity", **params)
        sizes = {card.memory_gib for card in context.cards_of(row)} - {None}
        limit = TOTAL_IS_NOT_CAPACITY.limits["difference"]
        if sizes and all(abs(total - (size or 0)) > limit * total for size in sizes):
            names = sorted({card.name for card in context.cards_of(row)})
            params_of_card = {"total": f"{total:g}", "names": names, "sizes": [f"{size:g}" for size in sizes if size]}
            yield finding(TOTAL_IS_NOT_CAPACITY, row.line, "lint.total_is_not_capacity", **params_of_card)


def out_of_range(context: ResultContext) -> Iterator[PageFinding]:
    for quality in context.manifest.qualities if context.manifest else ():
        low = quality.minimum or 0.0
        high = quality.maximum if quality.maximum is not None else 1.0 if quality.format == "fraction" else math.inf
        for row in context.page.table.rows:
            value = row.amount(quality.name)
            if value is not None and not low <= value <= high:
                params = {"metric": quality.name, "value": f"{value:g}", "low": f"{low:g}", "high": f"{high:g}"}
                yield finding(OUT_OF_RANGE, row.line, "doubt.out_of_range", **params)


TARGET_MISSED = Rule(
    "target_missed",
    of=("page",),
    effect="reported",
    published="0.908 of a target of 0.91 without a word: training/nvidia/distilbert-pytorch/README.md",
)


def target_missed(context: ResultContext) -> Iterator[PageFinding]:
    """The target of the published configuration, where the page does not judge by itself."""
    target = context.manifest.target if context.manifest else None
    if context.manifest is None or target is None or context.page.says("|".join(map(re.escape, words().verdicts))):
        return
    goal = published_values(context.manifest, (), 1, 1).get(target.key)
    for row in context.page.table.rows:
        value = row.amount(target.metric)
        if value is not None and isinstance(goal, float | int) and value < goal:
            params = {"metric": target.metric, "value": f"{value:g}", "target": f"{goal:g}"}
            yield finding(TARGET_MISSED, row.line, "lint.target_missed", **params)


def precisions(context: ResultContext) -> Iterator[PageFinding]:
    stated = context.page.stated("precision")
    if stated is None or stated.column:
        return
    for row in context.page.table.rows:
        said = row.said_precision
        if said and said.lower() != stated.value.lower():
            params = {"precision": said, "stated": stated.value, "line": stated.line}
            yield finding(PRECISION_DIFFERS, row.line, "lint.precision_differs", **params)


DATASET_DIFFERS = Rule(
    "dataset_differs",
    of=("page",),
    effect="reported",
    published="openwebtext in the table, SAMSum in the note: training/nvidia/llama2_7b_finetune-pytorch/README.md",
)


def dataset(context: ResultContext) -> Iterator[PageFinding]:
    stated = context.page.stated("dataset")
    if stated is None or context.manifest is None:
        return
    own = [word for word in re.split(r"[\s;,]+", context.manifest.dataset) if word]
    if any(word.lower() in stated.value.lower() for word in own):
        return
    elsewhere = next((line for word in own if (line := mentions(context.page.source, word)) is not None), None)
    params = {"stated": stated.value, "dataset": context.manifest.dataset}
    if elsewhere is None:
        yield finding(DATASET_DIFFERS, stated.line, "lint.dataset_differs", **params)
    else:
        yield finding(DATASET_DIFFERS, stated.line, "lint.dataset_differs_here", line=elsewhere, **params)


DEFAULT_DIFFERS = Rule(
    "default_differs",
    of=("page",),
    effect="reported",
    published="GAS 44 by default, 1024 in the configuration: training/metax/llama2_70B-megatron/README.md",
)

CONFIG_FILES_DIFFER = Rule(
    "config_files_differ",
    of=("page",),
    effect="reported",
    published=(
        "GAS from ds_config.json, which does not exist, all else from config_C500x4x8.py: "
        "training/metax/llama2_70B-megatron/README.md"
    ),
)


def defaults(context: ResultContext) -> Iterator[PageFinding]:
    """The numbered list of batch sizes: values of the published configuration, all of one file."""
    table, manifest = context.page.table, context.manifest
    row = next((row for row in table.rows if row.configuration is not None), None)
    if row is None or row.configuration is None or manifest is None:
        return
    shape = row.configuration
    values = published_values(manifest, context.cards_of(row), shape.nodes, shape.devices_per_node)
    said = list(_said_defaults(context))
    for name, number, _, line in said:
        has = values.get(words().defaults[name])
        if isinstance(has, int | float) and number != has:
            yield finding(DEFAULT_DIFFERS, line, "lint.default_differs", name=name, said=f"{number:g}", has=f"{has:g}")
    files = [file for _, _, file, _ in said if file]
    for name, _, file, line in said:
        if file and files.count(file) < len(files) / 2:
            others = sorted(set(files) - {file})
            yield finding(CONFIG_FILES_DIFFER, line, "lint.config_files_differ", name=name, file=file, others=others)


def _said_defaults(context: ResultContext) -> Iterator[tuple[str, float, str, int]]:
    """Abbreviation, number, file, line."""
    for number, line in enumerate(context.page.source.lines, start=1):
        name = next((each for each in words().defaults if re.search(rf"(?<![A-Za-z]){each}(?![A-Za-z])", line)), "")
        value = re.search(words().default_value, line)
        if name and value and re.match(r"\s*\d+\.", line):
            file = _FILE.search(line)
            yield name, float(value[1]), file[0] if file else "", number


def scaling_over_100(context: ResultContext) -> Iterator[PageFinding]:
    """Rows of one precision and batch size, against the one on the fewest cards."""
    groups: dict[tuple[str, str], list[tuple[int, float, int]]] = {}
    for row in context.page.table.rows:
        batch = re.search(r"(?:bs|batchsize)\s*=\s*(\d+)", row.text("fix_hp"))
        rate = row.amount("p_core")
        if row.configuration is not None and rate:
            key = context.precision_of(row), batch[1] if batch else ""
            groups.setdefault(key, []).append((row.configuration.cards, rate, row.line))
    for rows in groups.values():
        base_cards, base_rate, base_line = min(rows)
        for cards, rate, line in rows:
            share = scaling(rate, cards, base_rate, base_cards)
            if cards > base_cards and share > SCALING_OVER_100.limits["share"]:
                params = {"what": "p_core", "share": percent(share), "devices": cards, "base_devices": base_cards}
                where = message("lint.line", line=base_line)
                yield finding(SCALING_OVER_100, line, "doubt.scaling_over_100", base=where, **params)


CHECKS = (
    odd_rows,
    empty_cells,
    unread_cells,
    list_rows,
    throughput_order,
    memory_cells,
    out_of_range,
    target_missed,
    precisions,
    dataset,
    defaults,
    scaling_over_100,
)

# MFU cells of published pages: recomputed from the throughput beside them, by every formula that pages use.


FACTORS = {"exact-infer": 2, "exact-lora": 4, "exact": 6}
"""The case's formula -> FLOPs per parameter and token: forward 2, with gradients of inputs 4, and of weights 6."""

COMPUTE_ROWS = ("fp32", "tf32", "fp16", "bf16")

ROWS_OF = {"amp": ("bf16", "fp16"), "amp-bf16": ("bf16",), "amp-fp16": ("fp16",)}
"""Peak rows of precisions that pages write; others are rows themselves."""

RATES = (("token/p/s", True), ("p_core", False), ("p_infer_core", False))
"""Columns that MFU may come from, and whether they are of one device."""


class Formula(msgspec.Struct, frozen=True):
    """One way to compute it."""

    factor: int
    row: str
    peak: float
    share: float
    is_own: bool
    """By the case's own factor, over the peak of the row's own precision."""


MFU_WITHOUT_THROUGHPUT = Rule(
    "mfu_without_throughput",
    of=("page",),
    effect="reported",
    published="an MFU of 36.2 % without a throughput: training/metax/llama2_7b_finetune-pytorch/README.md",
)


def check_mfu(context: ResultContext) -> Iterator[PageFinding | Recomputed]:
    for row in context.page.table.rows:
        yield from _outside(row)
    pages = context.manifest.published_pages if context.manifest else None
    if context.manifest is None or pages is None:
        return
    for row in context.page.table.rows:
        rate = tokens_per_device(context, row, pages)
        cell = row.cells.get("mfu")
        printed = cell.quantity if cell is not None and not cell.is_empty else None
        if cell is not None and printed is not None:
            if rate is None:
                yield finding(MFU_WITHOUT_THROUGHPUT, row.line, "lint.mfu_without_throughput", mfu=cell.text)
            elif not context.page.says(words().own_formula):
                yield from _recompute(context, row, cell.text, printed, rate, context.manifest, pages)
        if rate is not None and pages.flops is not None:
            yield from _too_fast(context, row, rate, pages.flops)


def _outside(row: ResultRow) -> Iterator[PageFinding]:
    """A share of zero or less, or of more than one. Up to 100, a number without a unit may be in per cent."""
    cell, share = row.cells.get("mfu"), row.amount("mfu")
    if cell is None or share is None or cell.quantity is None:
        return
    if share <= 0:
        yield finding(SHARE_NOT_POSITIVE, row.line, "lint.share_not_positive", what="MFU", share=cell.text)
    elif share > (100 if not cell.quantity.unit else 1):
        params = {"metric": "MFU", "share": cell.text}
        yield finding(UTILISATION_OVER_100, row.line, "doubt.utilisation_over_100", **params)


def tokens_per_device(context: ResultContext, row: ResultRow, pages: PublishedPages) -> float | None:
    for column, is_per_device in RATES:
        value = row.amount(column)
        if value is None:
            continue
        if is_per_device:
            return value
        devices = context.devices_of(row)
        return value * pages.tokens_per_sample / devices if devices else None
    return None


def _recompute(
    context: ResultContext,
    row: ResultRow,
    text: str,
    printed: Quantity,
    rate: float,
    manifest: Manifest,
    pages: PublishedPages,
) -> Iterator[PageFinding | Recomputed]:
    formulas = list(_formulas(context, row, rate, manifest, pages))
    scale = 100.0 if printed.kind == "share" else 1.0
    holding = sorted((each for each in formulas if printed.is_printed_of(each.share * scale)), key=_preference)
    params = {"mfu": text, "rate": f"{rate:g}", "parameters": f"{pages.nominal_parameters:.4g}"}
    if holding:
        best = holding[0]
        computed = {"share": f"{best.share:.2%}", "factor": best.factor, "row": best.row}
        peak = units.teraflops(best.peak)
        yield Recomputed(text, row.line, message("lint.mfu_holds", peak=peak, **computed, **params))
        own = _own_rows(context.precision_of(row))
        if own and not any(each.row in own for each in holding):
            said = {"precision": context.precision_of(row), "row": best.row, "peak": peak}
            yield finding(PRECISION_DIFFERS, row.line, "lint.mfu_of_other_precision", mfu=text, **said)
    elif formulas:
        nearest = min(formulas, key=lambda each: abs(each.share * scale - printed.value))
        computed = {"share": f"{nearest.share:.2%}", "factor": nearest.factor, "row": nearest.row}
        peak = units.teraflops(nearest.peak)
        yield finding(MFU_DOES_NOT_FOLLOW, row.line, "lint.mfu_does_not_follow", peak=peak, **computed, **params)


def _preference(formula: Formula) -> tuple[bool, float]:
    return not formula.is_own, formula.peak


def _formulas(
    context: ResultContext, row: ResultRow, rate: float, manifest: Manifest, pages: PublishedPages
) -> Iterator[Formula]:
    own_rows, natural = _own_rows(context.precision_of(row)), FACTORS.get(manifest.mfu_formula or "", 0)
    for name, peak in _peaks(context, row).items():
        for factor in sorted(set(FACTORS.values())):
            share = rate * factor * pages.nominal_parameters / peak
            yield Formula(factor, name, peak, share, factor == natural and name in own_rows)


def _peaks(context: ResultContext, row: ResultRow) -> dict[str, float]:
    """Of the row's card; nothing where cards that it may mean differ."""
    found: dict[str, set[float]] = {}
    for card in context.cards_of(row):
        for name in COMPUTE_ROWS:
            if name in card.peaks:
                found.setdefault(name, set()).add(card.peaks[name])
    return {name: peaks.pop() for name, peaks in found.items() if len(peaks) == 1}


def _own_rows(precision: str) -> tuple[str, ...]:
    return ROWS_OF.get(precision, (precision,) if precision in COMPUTE_ROWS else ())


def _too_fast(context: ResultContext, row: ResultRow, rate: float, flops: int) -> Iterator[PageFinding]:
    """Faster than the peak of the precision that the row names."""
    peaks, own = _peaks(context, row), _own_rows(context.precision_of(row))
    own_peaks = [peaks[name] for name in own if name in peaks]
    if not own_peaks or rate * flops <= max(own_peaks):
        return
    params = {"rate": units.teraflops(rate * flops), "peak": units.teraflops(max(own_peaks)), "precision": own[0]}
    if own[0] == "fp32" and explaining_row(rate * flops, "fp32", peaks) == "tf32":
        other = units.teraflops(peaks["tf32"])
        yield finding(TF32_CALLED_FP32, row.line, "doubt.tf32_called_fp32", other=other, **params)
    else:
        yield finding(ABOVE_PEAK, row.line, "doubt.above_peak", **params)


# Checks of whose card a page is about, and of how many.


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


# What `pages lint` says of a page.


class ResultContext(msgspec.Struct, frozen=True):
    """A page of results with what is known of its case and cards."""

    page: ResultPage
    manifest: Manifest | None
    cards: Cards

    def cards_of(self, row: ResultRow) -> list[Card]:
        """Those that the row may mean, narrowed by what the page says of its card."""
        of_page = self.cards.cards_of(self.page.source)
        of_row = self.cards.cards_in(row.configuration.device) if row.configuration else []
        both = [card for card in of_row if card in of_page]
        return both or of_row or of_page

    def precision_of(self, row: ResultRow) -> str:
        stated = self.page.stated("precision")
        return (row.said_precision or (stated.value if stated and not stated.column else "")).lower()

    def devices_of(self, row: ResultRow) -> int | None:
        """By the row's shape, else by the parallel layout of the case's published configuration."""
        if row.configuration is not None:
            return row.configuration.cards
        parallel = self.manifest.values.get("parallel") if self.manifest else None
        if not isinstance(parallel, dict):
            return None
        return int(parallel.get("tp", 1)) * int(parallel.get("pp", 1)) * int(parallel.get("dp", 1))

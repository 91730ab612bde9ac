"""What is checked on pages of training and inference: their cells, cards and MFU, against the case and the cards."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from flagperf import units
from flagperf.messages import message
from flagperf.plausibility.doubts import SCALING_OVER_100
from flagperf.plausibility.row_checks import OVER_CAPACITY, SHARE_NOT_POSITIVE
from flagperf.plausibility.rules import scaling
from flagperf.plausibility.run_checks import (
    MFU_DOES_NOT_FOLLOW,
    ORDERED,
    OUT_OF_RANGE,
    THROUGHPUT_ORDER,
    TOTAL_IS_NOT_CAPACITY,
    UTILISATION_OVER_100,
)
from flagperf.spec.manifest import Manifest
from flagperf.units import percent
from flagperf_publish.published.findings import (
    CARD_COUNT,
    EMPTY_CELLS,
    PRECISION_DIFFERS,
    UNREAD_CELL,
    PageFinding,
    Recomputed,
    above_peak,
    finding,
    page_rule,
)
from flagperf_publish.published.page_source import layout, memory, words
from flagperf_publish.published.result_pages import (
    Cards,
    PageCard,
    ResultCell,
    ResultPage,
    ResultRow,
    column_of,
    device_lines,
    letters,
    published_values,
)


class ResultContext(msgspec.Struct, frozen=True):
    """A page of results with what is known of its case and cards."""

    page: ResultPage
    manifest: Manifest | None
    cards: Cards

    def cards_of(self, row: ResultRow) -> list[PageCard]:
        """Return the cards that the row may mean, narrowed by what the page says of its card."""
        of_page = self.cards.cards_of(self.page.source)
        of_row = self.cards.cards_in(row.configuration.device) if row.configuration else []
        both = [card for card in of_row if card in of_page]
        return both or of_row or of_page

    def precision_of(self, row: ResultRow) -> str:
        stated = self.page.stated("precision")
        return (row.said_precision or (stated.value if stated and not stated.column else "")).lower()

    def devices_of(self, row: ResultRow) -> int | None:
        """Return the number of devices by the row's shape, else by the parallel layout of the case."""
        if row.configuration is not None:
            return row.configuration.cards
        parallel = self.manifest.values.get("parallel") if self.manifest else None
        if not isinstance(parallel, dict):
            return None
        return int(parallel.get("tp", 1)) * int(parallel.get("pp", 1)) * int(parallel.get("dp", 1))


# --- cards and their number ---


def named_cards(context: ResultContext) -> list[tuple[int, str]]:
    """Return the lines and texts that name cards, each text once."""
    stated = context.page.stated("device")
    shapes = [(row.line, row.configuration.device) for row in context.page.table.rows if row.configuration]
    found = [*device_lines(context.page.source), *([(stated.line, stated.value)] if stated else []), *shapes]
    return list({text: (line, text) for line, text in reversed(found) if text}.values())[::-1]


DEVICES_DIFFER = page_rule(
    "devices_differ", "K100 in the rows, DCU Z100L as the short name: training/dcu/glm-pytorch/README.md"
)


def devices_differ(context: ResultContext) -> Iterator[PageFinding]:
    """Find names of other cards than the first. A name that nobody knows is looked for in the texts of the others."""
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
        if shape and (shape.said_cards not in (None, shape.cards) or shape.said_nodes not in (None, shape.nodes)):
            said = {"nodes": shape.said_nodes or shape.nodes, "said": shape.said_cards or shape.cards}
            params = {"shape": f"{shape.nodes}x{shape.devices_per_node}", "cards": shape.cards, **said}
            text = row.text("configuration") or row.text("resources")
            yield finding(CARD_COUNT, row.line, "lint.card_count", text=text, **params)


PARALLEL_PRODUCT = page_rule(
    "parallel_product",
    "TP8PP4DP1 on what the words call one machine with 8 cards: training/nvidia/llama2_70B-megatron/README.md",
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


# --- cells ---


_FILE = re.compile(r"[A-Za-z0-9_.-]{1,80}\.(?:py|json|ya?ml|toml|sh)")

RAGGED_ROW = page_rule(
    "ragged_row",
    "a sentence directly below the table, which Markdown shows as a row: training/dcu/glm-pytorch/README.md",
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


LIST_ROW_MISSING = page_rule(
    "list_row_missing", "a column MFU that the list of metrics lacks: inference/benchmarks/Aquila_33b/README.md"
)

COLUMN_MISSING = page_rule("column_missing", "a list that points to columns which the table lacks: training/nvidia")


def list_rows(context: ResultContext) -> Iterator[PageFinding]:
    """Find columns without an entry in the list of metrics, and entries without a column."""
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


TARGET_MISSED = page_rule(
    "target_missed", "0.908 of a target of 0.91 without a word: training/nvidia/distilbert-pytorch/README.md"
)


def target_missed(context: ResultContext) -> Iterator[PageFinding]:
    """Compare with the target of the published configuration, unless the page judges by itself."""
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


DATASET_DIFFERS = page_rule(
    "dataset_differs",
    "openwebtext in the table, SAMSum in the note: training/nvidia/llama2_7b_finetune-pytorch/README.md",
)


def dataset(context: ResultContext) -> Iterator[PageFinding]:
    stated = context.page.stated("dataset")
    if stated is None or context.manifest is None:
        return
    own = [word for word in re.split(r"[\s;,]+", context.manifest.dataset) if word]
    if any(word.lower() in stated.value.lower() for word in own):
        return
    lines = [letters(line) for line in context.page.source.lines]
    wanted = [found for word in own if (found := letters(word))]
    elsewhere = next((number for word in wanted for number, line in enumerate(lines, start=1) if word in line), None)
    params = {"stated": stated.value, "dataset": context.manifest.dataset}
    if elsewhere is None:
        yield finding(DATASET_DIFFERS, stated.line, "lint.dataset_differs", **params)
    else:
        yield finding(DATASET_DIFFERS, stated.line, "lint.dataset_differs_here", line=elsewhere, **params)


DEFAULT_DIFFERS = page_rule(
    "default_differs", "GAS 44 by default, 1024 in the configuration: training/metax/llama2_70B-megatron/README.md"
)

CONFIG_FILES_DIFFER = page_rule(
    "config_files_differ",
    "GAS from ds_config.json, which does not exist, all else from config_C500x4x8.py: "
    "training/metax/llama2_70B-megatron/README.md",
)


def defaults(context: ResultContext) -> Iterator[PageFinding]:
    """Compare the numbered list of batch sizes with the published configuration, and their files with each other."""
    table, manifest = context.page.table, context.manifest
    row = next((row for row in table.rows if row.configuration is not None), None)
    if row is None or row.configuration is None or manifest is None:
        return
    shape = row.configuration
    values = published_values(manifest, context.cards_of(row), shape.nodes, shape.devices_per_node)
    files = []
    for number, text in enumerate(context.page.source.lines, start=1):
        name = next((each for each in words().defaults if re.search(rf"(?<![A-Za-z]){each}(?![A-Za-z])", text)), "")
        said = re.search(words().default_value, text)
        if not (name and said and re.match(r"\s*\d+\.", text)):
            continue
        if found := _FILE.search(text):
            files.append((name, found[0], number))
        has = values.get(words().defaults[name])
        if isinstance(has, int | float) and float(said[1]) != has:
            params = {"name": name, "said": f"{float(said[1]):g}", "has": f"{has:g}"}
            yield finding(DEFAULT_DIFFERS, number, "lint.default_differs", **params)
    counts = Counter(file for _, file, _ in files)
    for name, file, number in files:
        if counts[file] < len(files) / 2:
            others = sorted(counts.keys() - {file})
            yield finding(CONFIG_FILES_DIFFER, number, "lint.config_files_differ", name=name, file=file, others=others)


def scaling_over_100(context: ResultContext) -> Iterator[PageFinding]:
    """Compare rows of one precision and batch size with the row on the fewest cards."""
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


# --- MFU: recomputed from the throughput beside it, by every formula that pages use ----------------------------------

FACTORS = {"exact-infer": 2, "exact-lora": 4, "exact": 6}
"""The case's formula -> FLOPs per parameter and token: forward 2, with gradients of inputs 4, and of weights 6."""

COMPUTE_ROWS = ("fp32", "tf32", "fp16", "bf16")

ROWS_OF = {"amp": ("bf16", "fp16"), "amp-bf16": ("bf16",), "amp-fp16": ("fp16",)}
"""Peak rows of precisions that pages write; others are rows themselves."""

RATES = {"token/p/s": True, "p_core": False, "p_infer_core": False}
"""Columns that MFU may come from, and whether they are of one device."""


class MfuFormula(msgspec.Struct, frozen=True):
    """One way to compute an MFU, and the share that it gives."""

    factor: int
    row: str
    peak: float
    share: float


def mfu_range(context: ResultContext) -> Iterator[PageFinding]:
    """Find shares of zero or less, or of more than one. Up to 100, a number without a unit may be in per cent."""
    for row in context.page.table.rows:
        cell, share = row.cells.get("mfu"), row.amount("mfu")
        if cell is None or share is None or cell.quantity is None:
            continue
        if share <= 0:
            yield finding(SHARE_NOT_POSITIVE, row.line, "lint.share_not_positive", what="MFU", share=cell.text)
        elif share > (100 if not cell.quantity.unit else 1):
            yield finding(UTILISATION_OVER_100, row.line, "doubt.utilisation_over_100", metric="MFU", share=cell.text)


MFU_WITHOUT_THROUGHPUT = page_rule(
    "mfu_without_throughput",
    "an MFU of 36.2 % without a throughput: training/metax/llama2_7b_finetune-pytorch/README.md",
)


def mfu(context: ResultContext) -> Iterator[PageFinding | Recomputed]:
    """Recompute the MFU of each row, and find rows that are faster than the peak of the precision that they name."""
    manifest = context.manifest
    pages = manifest.published_pages if manifest else None
    if manifest is None or pages is None:
        return
    for row in context.page.table.rows:
        precision, rate = context.precision_of(row), None  # tokens per second and device
        column = next((name for name in RATES if row.amount(name) is not None), "")
        if (value := row.amount(column)) is not None:
            devices = context.devices_of(row)
            rate = value if RATES[column] else value * pages.tokens_per_sample / devices if devices else None
        own_rows = ROWS_OF.get(precision, (precision,) if precision in COMPUTE_ROWS else ())
        cards, peaks = context.cards_of(row), {}
        for name in COMPUTE_ROWS:
            values = {card.peaks[name] for card in cards if name in card.peaks}
            if len(values) == 1:
                peaks[name] = values.pop()
        cell = row.cells.get("mfu")
        if cell is not None and not cell.is_empty and cell.quantity is not None:
            if rate is None:
                yield finding(MFU_WITHOUT_THROUGHPUT, row.line, "lint.mfu_without_throughput", mfu=cell.text)
            elif not context.page.says(words().own_formula):
                formulas = [
                    MfuFormula(factor, name, peak, rate * factor * pages.nominal_parameters / peak)
                    for name, peak in peaks.items()
                    for factor in sorted(FACTORS.values())
                ]
                own_factor = FACTORS.get(manifest.mfu_formula or "", 0)
                params = {"mfu": cell.text, "rate": f"{rate:g}", "parameters": f"{pages.nominal_parameters:.4g}"}
                yield from _judged(cell, formulas, own_factor, own_rows, precision, params)
        if rate is not None and pages.flops is not None and own_rows:
            own_peak = max((peaks[name] for name in own_rows if name in peaks), default=None)
            yield from above_peak(row.line, rate * pages.flops, own_rows[0], own_peak, peaks)


def _judged(
    cell: ResultCell,
    formulas: list[MfuFormula],
    own_factor: int,
    own_rows: Sequence[str],
    precision: str,
    params: Mapping[str, str],
) -> Iterator[PageFinding | Recomputed]:
    """Say which formula gives the MFU of a cell, preferring the case's own; else which one comes nearest."""
    printed = cell.quantity
    if printed is None or not formulas:
        return
    scale = 100.0 if printed.kind == "share" else 1.0
    holding = [each for each in formulas if printed.is_printed_of(each.share * scale)]
    if holding:
        best = min(holding, key=lambda each: (each.factor != own_factor or each.row not in own_rows, each.peak))
    else:
        best = min(formulas, key=lambda each: abs(each.share * scale - printed.value))
    peak = units.teraflops(best.peak)
    computed = {"share": f"{best.share:.2%}", "factor": best.factor, "row": best.row, "peak": peak, **params}
    if not holding:
        yield finding(MFU_DOES_NOT_FOLLOW, cell.line, "lint.mfu_does_not_follow", **computed)
        return
    yield Recomputed(cell.text, cell.line, message("lint.mfu_holds", **computed))
    if own_rows and not any(each.row in own_rows for each in holding):
        said = {"mfu": cell.text, "precision": precision, "row": best.row, "peak": peak}
        yield finding(PRECISION_DIFFERS, cell.line, "lint.mfu_of_other_precision", **said)


CHECKS: tuple[Callable[[ResultContext], Iterator[PageFinding | Recomputed]], ...] = (
    devices_differ,
    card_count,
    parallel_product,
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
    mfu_range,
    mfu,
)

"""Checks of the cells of a page of results: empty, unread, out of order, not what the page or the case says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from flagperf.messages import message
from flagperf.pages.cases import mentions, published_values
from flagperf.pages.finding import PageFinding, ResultContext, finding
from flagperf.pages.quantities import memory
from flagperf.pages.results import column_of
from flagperf.pages.words import words
from flagperf.plausibility.doubts import SCALING_OVER_100
from flagperf.plausibility.row_checks import OVER_CAPACITY
from flagperf.plausibility.rules import Rule, scaling
from flagperf.plausibility.run_checks import ORDERED, OUT_OF_RANGE, THROUGHPUT_ORDER, TOTAL_IS_NOT_CAPACITY
from flagperf.units import percent

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


EMPTY_CELLS = Rule(
    "empty_cells",
    of=("page",),
    effect="reported",
    published="27 of the 72 result cells of five pages: training/dcu/glm-pytorch/README.md and others",
)


def empty_cells(context: ResultContext) -> Iterator[PageFinding]:
    cells = [cell for row in context.page.table.rows for cell in row.results]
    empty = [cell for cell in cells if cell.is_empty and not cell.is_noted]
    if empty:
        params = {"count": len(empty), "all": len(cells), "lines": sorted({cell.line for cell in empty})}
        yield finding(EMPTY_CELLS, empty[0].line, "lint.empty_cells", **params)


UNREAD_CELL = Rule(
    "unread_cell",
    of=("page",),
    effect="reported",
    published="14.59.0W",
)


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


PRECISION_DIFFERS = Rule(
    "precision_differs",
    of=("page",),
    effect="reported",
    published=(
        "fp32 in the general table, fp16 in the row: training/nvidia/llama2_7b_finetune-pytorch/README.md; "
        "pages of FP16 and INT8 headed BF16: base/benchmarks/computation-FP16/iluvatar/BI150/README.md"
    ),
)


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

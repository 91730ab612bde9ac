"""The configuration of runs: every value, the layer that set it, and what the vendor or the user changed."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf import units
from flagperf.report.document import Block, Fold, Head, Paragraph, Table, TableCell, Text
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import Lang, say, web
from flagperf.spec import flatten, page_name
from flagperf.store.run import Run


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

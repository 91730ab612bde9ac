"""Parallelism, optimisation and batch sizes, for cases that list them in page.parts. The values come from the resolved
configurations of the runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from flagperf import units
from flagperf.report.document import Block, Bullets, Fact, Facts, Text
from flagperf.report.sections.naming import layout, layout_ways
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import Lang, choose, clauses, listed, say
from flagperf.spec import flatten
from flagperf.store.run import Run

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

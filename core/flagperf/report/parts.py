"""Further parts of a page, for cases that name them in page.parts: how the work was spread, what was optimised, and how
large a batch was. All of it is read from the runs' resolved configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flagperf import units
from flagperf.report.markdown import escape
from flagperf.report.page_runs import PageRuns
from flagperf.report.texts import Lang, choose, clauses, label, listed, say
from flagperf.report.words import layout, layout_ways
from flagperf.spec import flatten
from flagperf.store.run import Run

Words = Callable[[Run, Lang], str]


def strategies(page: PageRuns) -> list[str]:
    """One block for each of parallelism and optimisation, as the case asks for them."""
    return [
        "\n".join(["- ##### " + label(part, page.lang), *_lines(page, names)])
        for part, names in STRATEGIES.items()
        if part in page.manifest.page.parts
    ]


def batch_sizes(page: PageRuns) -> list[str]:
    if "batch_size" not in page.manifest.page.parts:
        return []
    lines = [f"{number}. {escape(_text(page, words))}" for number, words in enumerate(BATCH, 1)]
    return ["* " + label("batch_size", page.lang), "\n".join(lines)]


def _lines(page: PageRuns, names: Sequence[str]) -> list[str]:
    return [
        "  - " + say("line", page.lang, label=label(name, page.lang), value=escape(_text(page, LINES[name])))
        for name in names
    ]


def _text(page: PageRuns, words: Words) -> str:
    return clauses(page.by_rows([words(recorded.run, page.lang) for recorded in page.runs]), page.lang)


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


def _local_batch(run: Run, lang: Lang) -> str:
    return say("local_batch", lang, size=_number(run, "training.batch_size"))


def _sequence(run: Run, lang: Lang) -> str:
    return say("sequence", lang, length=_number(run, run.manifest.sequence_key))


def _accumulated(run: Run, lang: Lang) -> str:
    return say("accumulated", lang, steps=_number(run, "training.accumulate"))


def _global_batch(run: Run, lang: Lang) -> str:
    ways = _ways(run)["data_parallel"]
    size = _number(run, "training.batch_size") * _number(run, "training.accumulate") * ways
    return say("global_batch", lang, ways=ways, size=size)


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
BATCH: tuple[Words, ...] = (_local_batch, _sequence, _accumulated, _global_batch)

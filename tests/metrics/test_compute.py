"""The set of metrics is always the same, documented, and never an exception."""

import itertools
import re
from pathlib import Path

import msgspec
import pytest
from metric_builders import make_job, make_manifest, metrics_of, record_of
from test_replays import CLEAN, replay_record
from write_metrics_docs import with_index

from flagperf.event_files import EventFile
from flagperf.kinds import KINDS
from flagperf.metrics.entry import Mark, Metric, Reason, Record
from flagperf.metrics.flops import FORMULAS
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import ENTRIES, compute_metrics, kind_entries

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text()


def headings():
    return re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)


def test_names_are_those_of_the_kind_and_in_order():
    for job, kind in itertools.product((make_job(), make_job([2, 2])), KINDS.values()):
        metrics = compute_metrics(Observed(job, make_manifest(kind=kind.name), record_of()))
        assert [metric.name for metric in metrics] == [*(entry.name for entry in kind_entries(kind)), "acc", "target"]


def test_a_metric_has_a_value_or_a_reason_with_a_sentence():
    for metric in metrics_of(make_job([2]), record_of()).values():
        assert (metric.value is None) == (metric.reason is not None) == bool(metric.detail)


def test_every_metric_has_its_section():
    for entry in ENTRIES.values():
        assert (entry.heading or entry.name) in headings()
    assert metrics_of(make_job(), record_of())["acc"].definition == "quality"
    assert "quality" in headings() and "target" in headings()


def test_the_page_lists_every_formula_reason_and_mark():
    for code in (*FORMULAS, *Reason.__args__, *Mark.__args__):
        assert f"| `{code}` |" in PAGE, code


def test_the_index_of_the_page_is_written_from_the_entries():
    assert with_index(PAGE) == PAGE, "`make docs` writes the index of docs/metrics.md"


def test_metrics_survive_json():
    for metric in metrics_of(make_job([2]), clean()).values():
        assert msgspec.json.decode(msgspec.json.encode(metric), type=Metric) == metric


def clean():
    return replay_record("clean-2-ranks")


@pytest.mark.parametrize("position", range(60))
def test_a_record_cut_anywhere_gives_all_metrics(position):
    """Each file cut after its first `position` events, alone and together with the others."""
    whole = clean()
    cut = Record(_cut(whole.parent, position), _cuts(whole.ranks, position), _cuts(whole.samples, position))
    for record in (
        cut,
        msgspec.structs.replace(whole, ranks=cut.ranks),
        msgspec.structs.replace(whole, ranks=(whole.ranks[0], cut.ranks[1])),
        msgspec.structs.replace(whole, parent=cut.parent),
        msgspec.structs.replace(whole, samples=cut.samples),
    ):
        assert list(metrics_of(make_job([2], warmup_steps=2), record)) == list(CLEAN)


@pytest.mark.parametrize("position", range(20))
def test_a_record_that_lacks_one_event_gives_all_metrics(position):
    whole = clean()
    for files in (whole.ranks, whole.samples):
        lacking = tuple(EventFile(file.events[:position] + file.events[position + 1 :]) for file in files)
        record = msgspec.structs.replace(whole, **{"ranks" if files is whole.ranks else "samples": lacking})
        assert list(metrics_of(make_job([2], warmup_steps=2), record)) == list(CLEAN)


def _cut(file, position):
    return EventFile(file.events[:position], torn=True)


def _cuts(files, position):
    return tuple(_cut(file, position) for file in files)

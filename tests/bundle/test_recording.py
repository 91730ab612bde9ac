"""What the ranks recorded becomes one file, which a later run reads again."""

import msgspec
import pytest

from flagperf.api import OperatorCall, RecordedTensor, TensorArgument, ValueRange
from flagperf.api.operator_calls import RankOperators
from flagperf.bundle.bundle import file_digests, write_manifest
from flagperf.bundle.operator_file import collect_operators, read_operators
from flagperf.bundle.paths import OPERATORS_FILE, rank_operators
from flagperf.errors import BadInput
from flagperf.messages import message
from flagperf.metrics.entry import Metric
from flagperf.spec.job import PlannedNode
from run_builders import make_run, minimal_job


def of_rank(rank, width=8, high=5, steps=2, begin=0, **more):
    calls = [
        OperatorCall("aten::embedding", 2, [TensorArgument(0), TensorArgument(1)], ranges={"1": ValueRange(0, high)}),
        OperatorCall("aten::sub.Tensor", 4, [TensorArgument(0), begin]),
    ]
    tensors = [RecordedTensor((9, width), (width, 1), "float32"), RecordedTensor((3,), (1,), "int64")]
    return RankOperators(1, rank, "2.13.0", steps, 2, tensors, calls, **more)


def recording_run(tmp_path, *ranks):
    """A bundle with what these ranks wrote, and its run."""
    (tmp_path / "events").mkdir()
    for found in ranks:
        (tmp_path / rank_operators(found.rank)).write_bytes(msgspec.json.encode(found))
    job = minimal_job(record_steps=2)
    (node,) = job.nodes
    node = PlannedNode(0, node.address, node.host, node.devices * max(len(ranks), 1), 2)
    step = Metric("step_time_p50", "s", "step time", "system", 0.25)
    return msgspec.structs.replace(make_run("r"), job=msgspec.structs.replace(job, nodes=(node,)), metrics=(step,))


def collected(tmp_path, *ranks):
    return collect_operators(tmp_path, recording_run(tmp_path, *ranks))


def test_ranks_that_did_the_same_are_kept_once_with_the_ranges_of_all(tmp_path):
    found = collected(tmp_path, of_rank(0), of_rank(1, high=8, begin=32), of_rank(2, width=4))
    assert (found.steps, found.num_different, found.num_calls, found.num_parts, found.problem) == (2, 2, 6, 2, None)
    recording = read_operators(tmp_path, 1)
    (part,) = recording.parts
    assert part.ranks == [0, 1]
    assert part.calls[0].ranges == {"1": ValueRange(0, 8)}
    assert (recording.step_seconds, recording.torch, recording.device) == (0.25, "2.13.0", "Some CPU")
    assert read_operators(tmp_path, 2).parts[0].tensors[0].shape == (9, 4)
    assert not list((tmp_path / "events").iterdir()), "the ranks' own files are gone"


def test_nothing_is_written_where_nothing_was_recorded(tmp_path):
    found = collected(tmp_path, of_rank(0, steps=0, problem=message("recording.no_span")))
    assert (found.steps, found.problem.code) == (0, "recording.no_span")
    assert not (tmp_path / OPERATORS_FILE).exists()


@pytest.mark.parametrize(("content", "code"), [(None, "recording.missing"), (b"{", "recording.unreadable")])
def test_a_rank_without_a_usable_file_is_named(tmp_path, content, code):
    run = recording_run(tmp_path, of_rank(0), of_rank(1))
    path = tmp_path / rank_operators(1)
    path.unlink() if content is None else path.write_bytes(content)
    found = collect_operators(tmp_path, run)
    assert (found.steps, found.problem.code, found.problem.params["rank"]) == (2, code, 1)


def test_a_run_that_was_not_to_record_has_nothing(tmp_path):
    assert collect_operators(tmp_path, make_run("r")) is None


def test_a_rank_that_was_not_recorded_is_refused_with_those_that_were(tmp_path):
    collected(tmp_path, of_rank(0), of_rank(1, width=4))
    with pytest.raises(BadInput, match="no rank 7: that run had 2 ranks, and ranks 0, 1 stand for all"):
        read_operators(tmp_path, 7)


def test_a_bundle_without_a_recording_says_how_to_make_one(tmp_path):
    with pytest.raises(BadInput, match=r"has no recorded operators.*--record-operators"):
        read_operators(tmp_path, 0)


def rewritten(tmp_path, change):
    collected(tmp_path, of_rank(0))
    path = tmp_path / OPERATORS_FILE
    content = msgspec.json.decode(path.read_bytes())
    change(content)
    path.write_bytes(msgspec.json.encode(content))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda content: content.update(schema=2, parts="of another kind"),
            "recording schema 2, this flagperf reads 1",
        ),
        (lambda content: content.pop("parts"), "is damaged: Object missing required field `parts`"),
        (lambda content: content.update(parts=[]), "is damaged: it has no calls"),
        (lambda content: content["parts"][0].update(steps=0), "is damaged: calls of no rank or no step"),
        (lambda content: content["parts"][0]["tensors"].pop(), "is damaged: a call of aten::embedding has no tensor 1"),
        (lambda content: content["parts"][0]["tensors"][0][0].pop(), "is damaged: a tensor is"),
    ],
)
def test_what_cannot_be_replayed_is_refused(tmp_path, change, words):
    rewritten(tmp_path, change)
    with pytest.raises(BadInput, match=words):
        read_operators(tmp_path, 0)


def test_a_file_that_was_changed_after_the_run_is_refused(tmp_path):
    collected(tmp_path, of_rank(0))
    write_manifest(tmp_path, file_digests(tmp_path))
    read_operators(tmp_path, 0)
    path = tmp_path / OPERATORS_FILE
    path.write_bytes(path.read_bytes().replace(b'"count":4', b'"count":5'))
    with pytest.raises(BadInput, match="has changed since the run"):
        read_operators(tmp_path, 0)

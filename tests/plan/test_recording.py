"""What of a request to record or replay operators is refused before anything starts."""

import pytest

from flagperf.errors import BadInput
from flagperf.plan.case_checks import recording_to_replay, steps_to_record
from flagperf.spec.job import RunSpec
from run_builders import minimal_manifest


def test_three_steps_are_recorded_unless_another_number_is_asked_for():
    manifest = minimal_manifest()
    assert steps_to_record(RunSpec("demo"), manifest) == 0
    assert steps_to_record(RunSpec("demo", record_operators=True), manifest) == 3
    assert steps_to_record(RunSpec("demo", record_operators=True, record_steps=7), manifest) == 7


@pytest.mark.parametrize("kind", ["base", "operators"])
def test_a_case_without_steps_cannot_be_recorded(kind):
    with pytest.raises(BadInput, match=f"is of kind {kind}, which has no steps"):
        steps_to_record(RunSpec("demo", record_operators=True), minimal_manifest(kind=kind))


@pytest.mark.parametrize("kind", ["training", "base"])
def test_another_kind_than_operators_replays_nothing(kind):
    with pytest.raises(BadInput, match=f"kind {kind} replays no operators; use .*run operators --from r"):
        recording_to_replay(RunSpec("demo", replay="/runs/r"), minimal_manifest(kind=kind))


def test_a_bundle_without_a_recording_is_refused(tmp_path):
    with pytest.raises(BadInput, match="has no recorded operators"):
        recording_to_replay(RunSpec("operators", replay=str(tmp_path)), minimal_manifest(kind="operators"))

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


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("training", "kind training replays no operators; use .*run operators --from r"),
        ("base", "kind base replays no operators"),
        ("operators", "has no recorded operators"),
    ],
)
def test_what_cannot_be_replayed_is_refused(tmp_path, kind, words):
    (tmp_path / "r").mkdir()
    with pytest.raises(BadInput, match=words):
        recording_to_replay(RunSpec("demo", replay=str(tmp_path / "r")), minimal_manifest(kind=kind))

"""What a run gets at its end, from files that are read once."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from flagperf import event_files
from flagperf.bundle.bundle import read_bundle
from flagperf.event_files import EventFile
from flagperf.run import measure
from test_verify import COMMAND, bundle  # noqa: F401  a fixture


def test_every_file_of_ranks_and_nodes_is_decoded_once(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    decoded: Counter[str] = Counter()
    decode = event_files.decode_events

    def counting(lines: list[bytes], origin: str) -> EventFile:
        decoded[Path(origin).name] += 1
        return decode(lines, origin)

    monkeypatch.setattr(event_files, "decode_events", counting)
    run = read_bundle(bundle).run
    measured = measure(bundle, run)
    assert decoded == {"parent.jsonl": 1, "rank-00000.jsonl": 1, "node-000.jsonl": 1}
    assert msgspec.json.encode(measured.metrics) == msgspec.json.encode(run.metrics)
    assert (measured.commands, measured.damage) == ((COMMAND,), None)


@pytest.mark.parametrize("name", ["events/parent.jsonl", "events/rank-00000.jsonl", "samples/node-000.jsonl"])
def test_a_damaged_file_is_named_and_nothing_is_measured(bundle: Path, name: str) -> None:  # noqa: F811
    lines = (bundle / name).read_bytes().splitlines(keepends=True)
    (bundle / name).write_bytes(b"".join([lines[0], b"nonsense\n", *lines[2:]]))
    run = read_bundle(bundle).run
    measured = measure(bundle, run)
    assert f"{name}: line 2 is not a valid event" in str(measured.damage)
    assert {metric.value for metric in measured.metrics} == {None} and measured.commands == ()
    assert [metric.name for metric in measured.metrics] == [metric.name for metric in run.metrics]


@pytest.mark.parametrize("damage", ["removed", "garbage", "folder", "pipe", "other_pipe", "name"])
def test_what_the_bundle_cannot_be_read_without_is_a_damage_too(bundle: Path, damage: str) -> None:  # noqa: F811
    run, path, name = read_bundle(bundle).run, bundle / "environment.json", "environment.json"
    if damage in ("removed", "folder", "pipe"):
        path.unlink()
    if damage == "garbage":
        path.write_bytes(b"\xff")
    elif damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    elif damage == "other_pipe":
        name = "logs/launcher-000.log"
        (bundle / name).unlink(missing_ok=True)
        os.mkfifo(bundle / name)
    elif damage == "name":
        name = "logs/a\nb"
        (bundle / name).touch()
    measured = measure(bundle, run)
    assert name in str(measured.damage) and measured.commands == ()

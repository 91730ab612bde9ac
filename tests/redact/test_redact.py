"""A redacted copy has nothing that identifies its owner, and is still a bundle whose figures anyone recomputes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from recorded_bundles import FOLDER
from secret_bundle import CARDS, HOSTS, RUN_ID, SECRETS, empty_fields, make_secret_bundle

from flagperf.bundle.bundle import file_digests, read_bundle
from flagperf.bundle.operator_file import decode_operators
from flagperf.bundle.verify import verify_bundle
from flagperf.cli import run_cli
from flagperf.errors import BadInput
from flagperf.event_files import read_events
from flagperf_publish.passing.redact import Redacted, Wishes, found_in, redact
from flagperf_publish.passing.text_fields import FIELDS

RECORDED = FOLDER
FINISHED = sorted(path for path in RECORDED.iterdir() if (path / "MANIFEST").exists())
ALSO = Wishes(words=("moonshot",))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_secret_bundle(tmp_path_factory.mktemp("originals"))
    assert verify_bundle(path).problems == ()
    return path


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Redacted:
    return redact(original, tmp_path / "out", ALSO)


def files_of(path: Path) -> dict[str, bytes]:
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_the_bundle_has_something_in_every_field_that_may_identify(original: Path) -> None:
    """Else the next test would show nothing of it."""
    recorded = read_bundle(original)
    events = [read_events(path).events for path in original.rglob("*.jsonl")]
    filled = empty_fields([recorded.run, recorded.nodes, events, decode_operators(original)], {})
    wanted = {(kind, name) for kind, fields in FIELDS.items() for name, use in fields.items() if use != "harmless"}
    computed = {("Speedup", "against")}
    assert {key for key in wanted if not filled.get(key)} == computed


def test_nothing_of_it_is_left_in_any_file(copy: Redacted) -> None:
    for name, content in files_of(Path(copy.path)).items():
        text = content.decode(errors="replace").lower()
        left = sorted(secret for secret in SECRETS if re.search(_pattern(secret), text))
        assert left == [], name

    log = (Path(copy.path) / "logs" / "rank-00000.log").read_bytes()
    assert b"127.0.0.1 and cpu:0 are nobody's\r\n" in log and b"\n\xffhost-" in log, "what is nobody's stays"
    assert copy.redaction.left_out == ("labels.json",) and not (Path(copy.path) / "labels.json").exists()


def _pattern(secret: str) -> str:
    """Short words are parts of others: alice is in slice."""
    return rf"(?<![0-9a-z]){re.escape(secret.lower())}(?![0-9a-z])"


def test_the_copy_verifies_as_far_as_it_can_and_says_so(copy: Redacted, original: Path) -> None:
    result = verify_bundle(Path(copy.path))
    assert result.problems == ()
    assert result.num_metrics == verify_bundle(original).num_metrics
    assert result.redacted is True
    assert any("hashes were made over these" in note for note in result.notes)


def test_every_figure_is_that_of_the_original(copy: Redacted, original: Path) -> None:
    before, now = read_bundle(original).run, read_bundle(Path(copy.path)).run
    assert [(each.name, each.value, each.reason, each.marks) for each in now.metrics] == [
        (each.name, each.value, each.reason, each.marks) for each in before.metrics
    ]
    assert len(now.rows) == len(before.rows) == 4


def test_names_are_the_same_in_all_files_and_keep_their_order(copy: Redacted) -> None:
    path = Path(copy.path)
    run = read_bundle(path).run
    assert path.name == f"{RUN_ID}-redacted"
    assert run.id == run.job.run_id == decode_operators(path).run_id == path.name
    assert [node.host for node in run.job.nodes] == ["host-2", "host-4"]  # gpu17 and gpu4 are host-1 and host-3
    assert sorted(HOSTS) == list(HOSTS)
    assert [device.id for node in run.job.nodes for device in node.devices] == ["card-1", "card-2", "card-3", "card-4"]
    assert sorted(CARDS) == list(CARDS)
    assert json.loads((path / "events" / "rank-00002.jsonl").read_text().splitlines()[0])["device_id"] == "card-3"
    assert "card-3" in (path / "logs" / "rank-00000.log").read_text(errors="replace")
    assert {node.host for node in read_bundle(path).nodes} == {"host-2", "host-4"}


def test_only_pseudonyms_that_the_copy_has_are_counted(copy: Redacted, original: Path) -> None:
    files = {name: content for name, content in files_of(Path(copy.path)).items() if name != "redaction.json"}
    text = b" ".join(files.values()).decode(errors="replace")
    for kind, count in copy.redaction.replaced.items():
        assert len(set(re.findall(rf"(?<![\w-]){kind}-\d+(?!\d)", text))) == count, kind
    found = found_in(original, read_bundle(original), ALSO)
    assert len([each for each in found if each.kind == "host"]) == copy.redaction.replaced["host"] + 1
    assert copy.redaction.summary.startswith("4 cards, 5 hosts, 2 boots, ")


def test_no_hash_of_an_original_value_is_left_to_check_a_guess_with(original: Path, copy: Redacted) -> None:
    """A fingerprint of an IP address is as good as the address: there are few enough to try."""
    started = json.loads((original / "events" / "parent.jsonl").read_text().splitlines()[0])
    workers = [json.loads(path.read_text().splitlines()[0]) for path in original.glob("events/rank-*.jsonl")]
    text = b"".join(files_of(Path(copy.path)).values())
    names = ("job.nodes", "job.master_address", "job.data_dir", "spec", "commands")
    hashes = [started["planned"].get(name, "") for name in names] + [started["environment"]]
    hashes += [worker["job"] for worker in workers] + list(file_digests(original).values())
    assert len(hashes) > 15
    assert [digest for digest in hashes if digest and digest.encode() in text] == []


def test_the_command_makes_a_copy_and_says_what_was_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run_cli(["runs", "redact", str(FINISHED[0]), "--out", str(out)]) == 0
    printed = capfd.readouterr()
    assert printed.out == f"{out}/{FINISHED[0].name}-redacted\n"
    assert re.search(r"replaced: .*1 host\b", printed.err)
    assert list(tmp_path.iterdir()) == [out]
    assert run_cli(["runs", "verify", printed.out.strip()]) == 0
    assert "verified as far as a redacted run can be: " in capfd.readouterr().out
    assert run_cli(["runs", "list", "--runs-dir", str(out)]) == 0
    assert "succeeded (redacted)" in capfd.readouterr().out


def test_a_word_that_is_too_short_leaves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["runs", "redact", str(FINISHED[0]), "--out", str(tmp_path / "out"), "--also", "ab"]) == 2
    assert "too short" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bundle", FINISHED, ids=lambda path: path.name)
def test_recorded_runs_of_all_endings_can_be_redacted(bundle: Path, tmp_path: Path) -> None:
    made = redact(bundle, tmp_path / "out", Wishes())
    assert verify_bundle(Path(made.path)).problems == ()
    content = b"".join(files_of(Path(made.path)).values())
    assert b'"lab"' not in content
    assert b"da5edebd" not in content


# --- refusals -------------------------------------------------------------------------------------------------------


def test_a_run_that_does_not_verify_is_not_redacted(original: Path, tmp_path: Path) -> None:
    """Its hashes are made anew: a change would be hidden by that."""
    changed = Path(shutil.copytree(original, tmp_path / RUN_ID))
    (changed / "logs" / "rank-00000.log").write_text("better")
    with pytest.raises(BadInput, match="is not verified, so it is not redacted"):
        redact(changed, tmp_path / "out", Wishes())
    assert not (tmp_path / "out").exists()


def test_a_redacted_run_is_not_redacted_again(copy: Redacted, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is redacted already"):
        redact(Path(copy.path), tmp_path / "again", Wishes())


def test_an_existing_copy_stays(original: Path, copy: Redacted, tmp_path: Path) -> None:
    before = files_of(Path(copy.path))
    with pytest.raises(BadInput, match="exists; remove it"):
        redact(original, tmp_path / "out", Wishes())
    assert files_of(Path(copy.path)) == before


def test_a_word_that_would_stay_is_refused(original: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'nova' would still be in .*: it is part of a name that redaction leaves"):
        redact(original, tmp_path / "out", Wishes(words=("nova",)))
    assert list(tmp_path.iterdir()) == []


def test_logs_can_be_left_out(original: Path, tmp_path: Path) -> None:
    made = redact(original, tmp_path / "out", Wishes(with_logs=False))
    assert not list((Path(made.path) / "logs").iterdir())
    assert made.redaction.left_out == ("labels.json", "logs")
    assert verify_bundle(Path(made.path)).problems == ()


def test_a_redaction_that_was_added_to_a_run_is_a_problem(original: Path, copy: Redacted, tmp_path: Path) -> None:
    """It would make the note that hashes were made anew an excuse."""
    other = Path(shutil.copytree(original, tmp_path / RUN_ID))
    shutil.copy(Path(copy.path) / "redaction.json", other)
    assert "redaction.json was added after the run" in verify_bundle(other).problems
    bare = Path(shutil.copytree(copy.path, tmp_path / "bare"))
    (bare / "redaction.json").unlink()
    assert "redaction.json and run.json do not say the same of what was redacted" in verify_bundle(bare).problems

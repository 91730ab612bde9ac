"""Runs among many: their lines, which is meant by a word, and their removal."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from recorded_bundles import FOLDER

from flagperf.bundle.bundle import create_bundle, seal, write_run
from flagperf.bundle.listing import (
    MainFigure,
    bundle_paths,
    find_latest,
    find_run,
    list_runs,
    matching_runs,
    removable,
    remove,
    run_line,
    unfinished_runs,
)
from flagperf.bundle.liveness import holding
from flagperf.bundle.run_record import Ending, Labels, Run, Status, write_labels
from flagperf.errors import BadInput
from flagperf.metrics.entry import Metric
from flagperf.spec.manifest import Page, RowFigure
from run_builders import make_run, minimal_manifest

BUNDLES = FOLDER


def speed(name: str, value: float | None = 12.5, **fields: object) -> Metric:
    return msgspec.structs.replace(Metric(name, "samples/s", name, "system", value=value), **fields)


def bundle(folder: Path, number: int, status: Status | None = "succeeded", **changes: object) -> Path:
    run = make_run(f"2026010{number}T000000Z-demo-cpu-1x1-abc12{number}")
    path = create_bundle(folder, run, ())
    if status is not None:
        write_run(path, msgspec.structs.replace(run, ending=Ending(status), **changes))
        seal(path)
    return path


def headline(folder: Path, **changes: object) -> tuple[str, ...]:
    return tuple(each.name for each in run_line(bundle(folder, 1, **changes)).headline)


def test_a_line_has_what_was_run_on_what_and_what_came_of_it(tmp_path: Path) -> None:
    path = bundle(tmp_path, 1, metrics=(speed("p_core", marks=("busy_host",)), speed("mfu", None)))
    write_labels(path, Labels(("good", "week-2"), "a note"))
    line = run_line(path)
    assert (line.id, line.case, line.vendor, line.device) == (path.name, "demo", "cpu", "CPU")
    assert (line.shape, line.profile, line.precision, line.status) == ("1x1", "tiny", "fp32", "succeeded")
    assert line.headline == (MainFigure("p_core", 12.5, "samples/s", ("busy_host",)),)
    assert (line.tags, line.note) == (("good", "week-2"), "a note")


def test_the_headline_is_what_the_page_of_the_case_has_of_its_kind(tmp_path: Path) -> None:
    metrics = (speed("p_core"), speed("token/p/s"), speed("mfu"))
    page = Page(("token/p/s", "mfu"), ())
    assert headline(tmp_path / "a", metrics=metrics) == ("p_core", "token/p/s", "mfu")
    own = minimal_manifest(page=page)
    assert headline(tmp_path / "b", metrics=metrics, manifest=own) == ("token/p/s", "mfu")


def test_the_headline_of_a_case_with_figures_are_those_that_it_calls_so(tmp_path: Path) -> None:
    figures = [RowFigure(name, {"en": name}, "r", "flops", "TFLOPS", headline=name == "b") for name in ("a", "b")]
    own = minimal_manifest(kind="base", figures=tuple(figures))
    assert headline(tmp_path, metrics=(speed("a"), speed("b")), manifest=own) == ("b",)


def test_what_a_failed_run_has_measured_is_no_result(tmp_path: Path) -> None:
    assert headline(tmp_path / "a", status="failed", metrics=(speed("p_core"),)) == ()
    assert headline(tmp_path / "b", status="target_missed", metrics=(speed("p_core"),)) == ("p_core",)


def test_what_cannot_be_read_says_why_and_is_listed(tmp_path: Path) -> None:
    path = bundle(tmp_path, 1)
    (path / "labels.json").write_text("{")
    line = run_line(path)
    assert line.status == "succeeded"
    assert "labels.json has no tags and note of a run" in line.problem
    (path / "run.json").write_text('{"id": 3}')
    assert run_line(path).status == "unreadable"
    assert "not a valid run record" in run_line(path).problem


def test_recorded_runs_have_their_result() -> None:
    lines = {line.id[17:-7]: line for line in list_runs(BUNDLES)}
    assert lines["llama2_7b_finetune-cpu-1x1"].headline[0].name == "token/p/s"
    assert lines["aquila_33b-cpu-1x1"].headline[0].name == "p_infer_core"
    assert lines["distilbert-metax-1x2"].simulated
    assert sum(line.status == "unknown" and line.host == "lab" for line in lines.values()) <= 1


# --- latest ---------------------------------------------------------------------------------------------------------


def test_latest_is_the_latest_that_has_ended_and_knows_of_a_newer_one(tmp_path: Path) -> None:
    first, running = bundle(tmp_path, 1, "failed"), bundle(tmp_path, 2, None)
    with holding(running):
        latest = find_latest(tmp_path)
        assert (latest.path, latest.newer.id, latest.newer.status) == (first, running.name, "running")
        assert find_run("latest", tmp_path) == first
        assert [line.id for line in unfinished_runs(tmp_path)] == [running.name]
    newest = bundle(tmp_path, 3)
    assert find_latest(tmp_path).path == newest
    assert find_latest(tmp_path).newer is None


def test_without_a_finished_run_latest_names_the_newest(tmp_path: Path) -> None:
    path = bundle(tmp_path, 1, None)
    with holding(path), pytest.raises(BadInput, match=f"no run .* has finished; the newest, {path.name}, is running"):
        find_run("latest", tmp_path)


def test_a_run_that_is_being_sealed_has_ended(tmp_path: Path) -> None:
    run: Run = make_run("20260101T000000Z-demo-cpu-1x1-abc123")
    path = create_bundle(tmp_path, run, ())
    write_run(path, msgspec.structs.replace(run, ending=Ending("succeeded")))
    assert run_line(path).status == "succeeded"
    assert unfinished_runs(tmp_path) == []


# --- folders of another name ----------------------------------------------------------------------------------------


def test_runs_in_folders_of_another_name_are_in_the_order_of_their_making(tmp_path: Path) -> None:
    bundle(tmp_path, 2).rename(tmp_path / "zz-old-run")
    bundle(tmp_path, 1).rename(tmp_path / "bundle")
    newest = bundle(tmp_path, 3)
    assert [line.id[7] for line in list_runs(tmp_path)] == ["1", "2", "3"]
    assert [path.name for path in bundle_paths(tmp_path)] == ["bundle", "zz-old-run", newest.name]
    assert find_latest(tmp_path).path == newest
    newest.rename(tmp_path / "aa")
    assert find_latest(tmp_path).path == tmp_path / "aa"


def test_a_run_is_found_by_its_id_and_by_the_name_of_its_folder(tmp_path: Path) -> None:
    path = bundle(tmp_path, 1).rename(tmp_path / "bundle")
    bundle(tmp_path, 2)
    run_id = run_line(path).id
    assert {find_run(word, tmp_path) for word in (run_id, run_id[:8], "bundle", "bun")} == {path}
    assert matching_runs("*abc121", tmp_path) == [path]
    with pytest.raises(BadInput, match="did you mean 20260101T000000Z-demo-cpu-1x1-abc121"):
        find_run(run_id[:-1] + "x", tmp_path)


def test_a_whole_name_goes_before_names_that_begin_with_it(tmp_path: Path) -> None:
    path, other = bundle(tmp_path, 1), make_run("20260101T000000Z-demo-cpu-1x1-abc121-redacted")
    create_bundle(tmp_path, other, ())
    assert find_run(path.name, tmp_path) == path
    shutil.copytree(path, tmp_path / "bundle")
    assert find_run(path.name, tmp_path) == path
    path.rename(tmp_path / "bundle-2")
    with pytest.raises(BadInput, match=r"2 runs match in \S+ \(bundle, bundle-2\); name one of the folders"):
        find_run(path.name, tmp_path)


def test_a_run_with_an_id_of_its_own_form_goes_by_when_it_was_created(tmp_path: Path) -> None:
    for name, created in (("first", "2026-01-01T12:00:00+00:00"), ("a", "2026-01-03T01:00:00+02:00"), ("b", "once")):
        create_bundle(tmp_path, msgspec.structs.replace(make_run(name), created=created), ())
    bundle(tmp_path, 2)
    assert [path.name[:5] for path in bundle_paths(tmp_path)] == ["b", "first", "20260", "a"]


def test_of_folders_that_are_called_like_runs_no_file_is_read_for_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [bundle(tmp_path, number) for number in (1, 2, 3)]
    read: list[Path] = []
    monkeypatch.setattr("flagperf.bundle.bundle.read_json", lambda path, _kind: read.append(path))
    assert bundle_paths(tmp_path) == paths
    assert find_run(paths[0].name, tmp_path) == paths[0]
    assert read == []


# --- only bundles are removed, and only those of runs that are over ---------------------------------------------------


RUN_ID = "20260101T000000Z-demo-cpu-1x1-abc123"


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = create_bundle(tmp_path / "runs", make_run(RUN_ID), ())
    seal(path)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as raised:
        removable(path, force=False)
    assert str(raised.value).endswith("nothing was removed")
    return str(raised.value)


def test_a_bundle_is_removed_and_nothing_is_left(sealed: Path) -> None:
    (sealed / ".run.json.x7f2").write_text("left by a killed command")
    found = removable(sealed, force=False)
    assert (found.path, found.line.id) == (sealed, RUN_ID)
    assert found.num_bytes == sum(file.stat().st_size for file in sealed.rglob("*") if file.is_file())
    remove([found])
    assert list(sealed.parent.iterdir()) == []


def test_what_a_link_in_a_bundle_points_to_stays(sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    (sealed / "logs" / "link").symlink_to(tmp_path / "precious")
    remove([removable(sealed, force=False)])
    assert (tmp_path / "precious" / "file").read_text() == "mine"


def test_a_link_to_a_bundle_is_refused(sealed: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(sealed)
    for path in (link, Path(f"{link}/"), link / "." / ".." / "link"):
        assert "is a link, not the folder of a run" in refusal(path)
    assert sealed.is_dir()


@pytest.mark.parametrize("name", ["thesis.tex", ".ssh", "events2"])
def test_a_folder_with_anything_else_is_refused(sealed: Path, name: str) -> None:
    (sealed / name).mkdir()
    assert f"has {name!r}, which no run writes" in refusal(sealed)


def test_a_run_that_is_running_is_refused_even_with_force(sealed: Path) -> None:
    with holding(sealed):
        assert f"{RUN_ID} is running" in refusal(sealed)
        with pytest.raises(BadInput):
            removable(sealed, force=True)


def test_a_run_that_may_be_running_elsewhere_needs_force(tmp_path: Path) -> None:
    path = create_bundle(tmp_path, make_run(RUN_ID), ())
    assert "cannot be seen from here" in refusal(path)
    remove([removable(path, force=True)])
    assert not path.exists()

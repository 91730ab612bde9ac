"""A site is built once, and then brought up to date: nothing that is not ours is touched, and nothing is done twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from site_building import build, installed, wanted
from web_runs import bundle_path

from flagperf.bundle.imported import ImportedPage, imported_path, write_imported
from flagperf.bundle.run_record import Labels, write_labels
from flagperf.errors import BadInput, BundleFailed
from flagperf_publish.site.site_build import build_site

FIRST, FAILED, INFERENCE = (bundle_path(name).name for name in ("distilbert", "failed", "aquila_33b"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def row_of(out: Path, run_id: str) -> Any:
    return json.loads((out / "runs" / f"{run_id}.json").read_text())["row"]


def test_a_site_has_an_index_and_a_page_for_each_run(runs_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "site"
    out.mkdir(parents=True)  # an empty folder may become a site
    built = build(out, runs_dir)
    assert (built.num_runs, built.num_cases, built.num_published) == (3, 2, 9)
    assert sorted(built.rendered) == sorted([FIRST, FAILED, INFERENCE]) and built.left_out == ()
    pages = {f"runs/{run}.{ending}" for run in (FIRST, FAILED, INFERENCE) for ending in ("html", "json")}
    assert set(files(out)) == {"index.html", "site.json", *pages}
    page = (out / "runs" / f"{FIRST}.html").read_text()
    assert "script-src 'none'" in page and '<a href="../index.html">← All runs</a>' in page
    before = files(out)
    again = build(out, runs_dir)
    assert again.rendered == () and again.removed == () and again.num_runs == 3
    assert files(out) == before


def test_only_new_and_changed_runs_are_rendered(runs_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    build(out, runs_dir, runs_dir / FIRST, runs_dir / FAILED)
    assert build(out, runs_dir).rendered == (INFERENCE,)
    write_labels(runs_dir / FIRST, Labels(("golden",), "kept for customers"))
    assert build(out, runs_dir).rendered == (FIRST,)
    assert row_of(out, FIRST)["tags"] == "golden"
    (runs_dir / INFERENCE / "logs" / "rank-00000.log").unlink()
    assert build(out, runs_dir).rendered == (INFERENCE,)


def test_a_bundle_without_its_raw_files_is_logged_and_says_so(runs_dir: Path, tmp_path: Path) -> None:
    build(tmp_path / "site", runs_dir)
    assert row_of(tmp_path / "site", FIRST)["grade"] == "recomputable"
    shutil.rmtree(runs_dir / FIRST / "events")
    built = build(tmp_path / "site", runs_dir)
    assert row_of(tmp_path / "site", FIRST)["grade"] == "logged"
    assert list(built.unverified) == [FIRST] and "missing" in built.unverified[FIRST]


def test_an_imported_result_renders_the_runs_of_its_case(runs_dir: Path, tmp_path: Path) -> None:
    build(tmp_path / "site", runs_dir)
    reference = installed()["distilbert"].references[0]
    changed = type(reference)("acme", "A1", 1, 8, "fp32", "none", "old.md", {"p_core": 7.0}, line=3, sha256="0" * 64)
    write_imported(imported_path(runs_dir, "old"), ImportedPage("distilbert", "old.md", "0" * 64, (changed,)))
    built = build(tmp_path / "site", runs_dir)
    assert set(built.rendered) == {FIRST, FAILED} and built.num_published == 10
    assert "old.md" in (tmp_path / "site" / "runs" / f"{FIRST}.html").read_text()


@pytest.mark.parametrize("changes", [{"lang": "zh"}, {"published": False}])
def test_another_language_or_content_renders_all(changes: Any, runs_dir: Path, tmp_path: Path) -> None:
    build(tmp_path / "site", runs_dir)
    assert len(build(tmp_path / "site", runs_dir, **changes).rendered) == 3
    assert build(tmp_path / "site", runs_dir, **changes, title="Cards <b> of 2026").rendered == ()
    assert "<h1>Cards &lt;b&gt; of 2026</h1>" in (tmp_path / "site" / "index.html").read_text()


def test_runs_that_are_not_named_any_more_leave_and_foreign_files_stay(runs_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    build(out, runs_dir)
    for foreign in (out / "CNAME", out / "runs" / "notes.html"):
        foreign.write_text("ours")
    assert build(out, runs_dir, runs_dir / INFERENCE).removed == tuple(sorted([FIRST, FAILED]))
    left = {"index.html", "site.json", "CNAME", "runs/notes.html", f"runs/{INFERENCE}.html", f"runs/{INFERENCE}.json"}
    assert set(files(out)) == left


def test_a_moved_site_and_moved_runs_stay_as_they_are(runs_dir: Path, tmp_path: Path) -> None:
    build(tmp_path / "site", runs_dir)
    (tmp_path / "site").rename(tmp_path / "elsewhere")
    copied = Path(shutil.copytree(runs_dir, tmp_path / "copies"))
    assert build(tmp_path / "elsewhere", copied).rendered == ()


def test_what_was_interrupted_goes_on_where_it_ended(runs_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    build(out, runs_dir, runs_dir / FIRST)
    before = (out / "index.html").read_bytes()

    def stop(num_done: int, _num_all: int, _run: str) -> None:
        if num_done:
            raise KeyboardInterrupt

    paths = [runs_dir / name for name in (FAILED, INFERENCE)]
    with pytest.raises(KeyboardInterrupt):
        build_site(out, paths, wanted(), runs_dir, installed, stop)
    assert (out / "index.html").read_bytes() == before and (out / "runs" / f"{FIRST}.html").is_file()
    built = build(out, runs_dir, *paths)
    assert built.rendered == (INFERENCE,) and built.removed == (FIRST,)


@pytest.mark.parametrize("damage", ["page", "row", "no row"])
def test_a_page_or_row_that_is_gone_or_damaged_is_made_again(damage: str, runs_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    build(out, runs_dir)
    page, row = (out / "runs" / f"{FIRST}.{ending}" for ending in ("html", "json"))
    if damage == "row":
        row.write_text('{"key": 1')
    else:
        (page if damage == "page" else row).unlink()
    assert build(out, runs_dir).rendered == (FIRST,)


# --- what is not ours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("thesis.tex", "ten years", "it is not a site of flagperf"),
        ("site.json", '{"flagperf_site": 2, "flagperf": "9.0"}', "written by flagperf 9.0, which is newer"),
        (
            "site.json",
            '{"flagperf_site": 1, "flagperf": "0.1.0", "runs": ["../../thesis"]}',
            "names '../../thesis', which is not a run",
        ),
        ("site.json", '{"name": "my blog"}', "is not that of a site of flagperf"),
    ],
)
def test_what_is_no_site_is_refused_and_left_as_it_is(
    file: str, content: str, said: str, runs_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / file).write_text(content)
    with pytest.raises(BadInput, match=said):
        build(out, runs_dir)
    assert files(out) == {file: content.encode()}


def test_a_disk_that_is_full_leaves_what_was_there(
    runs_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "site"
    build(out, runs_dir, runs_dir / FIRST)
    before = files(out)

    def write(path: Path, _content: bytes) -> None:
        if path.name != "site.json":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("flagperf_publish.site.site_folder.write_atomically", write)
    with pytest.raises(BundleFailed, match="No space left on device; what was written before still works"):
        build(out, runs_dir)
    assert files(out) == before


# --- runs that are not on it ----------------------------------------------------------------------------------------


def left_out(built: Any) -> dict[str, tuple[str, bool]]:
    return {each.run: (each.why, each.is_problem) for each in built.left_out}


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_shown(runs_dir: Path, tmp_path: Path) -> None:
    text = (runs_dir / FAILED / "run.json").read_text()
    (runs_dir / FAILED / "run.json").write_text(text[: len(text) // 2])
    built = build(tmp_path / "site", runs_dir)
    ((run, (why, is_problem)),) = left_out(built).items()
    assert run == FAILED and "run.json" in why and is_problem and built.num_runs == 2


def test_what_is_damaged_in_a_way_nobody_foresaw_is_named_too(runs_dir: Path, tmp_path: Path) -> None:
    path = runs_dir / FIRST / "run.json"
    run = json.loads(path.read_text())
    run["job"]["nodes"] = []
    path.write_text(json.dumps(run))
    built = build(tmp_path / "site", runs_dir)
    assert left_out(built)[FIRST][1] and built.num_runs == 2


def test_unfinished_and_simulated_runs_are_left_out_and_nothing_is_wrong(runs_dir: Path, tmp_path: Path) -> None:
    unfinished = bundle_path("parent_killed")
    simulated = bundle_path("simulated")
    built = build(tmp_path / "site", runs_dir, runs_dir / FIRST, unfinished, simulated)
    assert left_out(built) == {
        unfinished.name: ("it is not finished: unknown", False),
        simulated.name: (
            "it is simulated: no device was used; use --allow-simulated to show it anyway, marked as simulated", False,
        ),
    }  # fmt: skip
    assert build(tmp_path / "site", runs_dir, simulated, allow_simulated=True).num_runs == 1


def test_two_runs_of_one_id_are_one(runs_dir: Path, tmp_path: Path) -> None:
    twin = Path(shutil.copytree(runs_dir / FIRST, tmp_path / "twin"))
    built = build(tmp_path / "site", runs_dir, runs_dir / FIRST, twin)
    assert built.num_runs == 1 and "another run has this id" in left_out(built)[FIRST][0]


def test_an_id_cannot_leave_the_folder(runs_dir: Path, tmp_path: Path) -> None:
    path = runs_dir / FIRST / "run.json"
    path.write_text(path.read_text().replace(FIRST, "../../evil"))
    built = build(tmp_path / "site", runs_dir)
    assert left_out(built)["../../evil"] == ("its id cannot be the name of a file", True)
    assert not list(tmp_path.glob("**/evil*"))

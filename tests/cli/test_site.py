"""flagperf site: which runs, what is said, and what is refused."""

from __future__ import annotations

import json
import shutil
import webbrowser
from pathlib import Path

import pytest
from recorded_bundles import FOLDER, IDS

from flagperf.bundle.run_record import Labels, write_labels
from flagperf.cli import run_cli

BUNDLES = FOLDER
FIRST, SECOND, SIMULATED, UNFINISHED = (
    IDS[name] for name in ("distilbert", "distilbert_1x2", "simulated", "parent_killed")
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with runs/ in it."""
    for name in (FIRST, SECOND):
        shutil.copytree(BUNDLES / name, tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capfd: pytest.CaptureFixture[str]) -> str:
    captured = capfd.readouterr()
    return captured.out + captured.err


def test_all_runs_of_the_folder_then_only_new_ones(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["site", "site"]) == 0
    printed = capfd.readouterr().out
    assert "site: site/index.html\non it: runs 2, cases 1, published results 8\npages: 2 rendered" in printed
    shutil.copytree(BUNDLES / UNFINISHED, folder / "runs" / UNFINISHED)
    (folder / "runs" / SECOND / "logs" / "rank-00000.log").write_text("another")
    assert run_cli(["site", "site", "--title", "Cards"]) == 0
    printed = capfd.readouterr().out
    assert "<h1>Cards</h1>" in (folder / "site" / "index.html").read_text()
    assert "pages: 1 rendered, 1 unchanged, 0 removed" in printed
    assert f"not verified: {SECOND}: logs/rank-00000.log" in printed
    assert f"left out: {UNFINISHED}: it is not finished: unknown" in printed


@pytest.mark.parametrize(
    "words",
    [["latest"], [SECOND[:16]], [f"runs/{SECOND}", SECOND], ["*-1x2-*"], ["tag:shown"], [f"{SECOND},latest"]],
)
def test_runs_are_named_as_elsewhere(words: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_labels(folder / "runs" / SECOND, Labels(("shown",)))
    assert run_cli(["site", "site", *words, "--json"]) == 0
    built = json.loads(capfd.readouterr().out)
    assert built["rendered"] == [SECOND] and built["num_runs"] == 1
    assert built["index"] == "site/index.html" and built["left_out"] == []


def test_a_run_that_cannot_be_read_is_named_and_the_exit_code_says_so(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "runs" / FIRST / "run.json").write_text("{")
    assert run_cli(["site", "site"]) == 2
    printed = capfd.readouterr().out
    assert "on it: runs 1," in printed and f"left out: {FIRST}: " in printed and "run.json" in printed
    assert (folder / "site" / "index.html").is_file()


@pytest.mark.parametrize("word", [FIRST, f"runs/{FIRST}"])
def test_a_damaged_bundle_that_is_named_is_left_out(word: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "runs" / FIRST / "run.json").unlink()
    assert run_cli(["site", "site", word, "latest"]) == 2
    assert f"left out: {FIRST}: " in said(capfd) and (folder / "site" / "runs" / f"{SECOND}.html").is_file()


def test_simulated_runs_have_to_be_allowed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    simulated = str(BUNDLES / SIMULATED)
    assert run_cli(["site", "site", simulated]) == 2
    assert "use --allow-simulated" in said(capfd) and not (folder / "site").exists()
    assert run_cli(["site", "site", simulated, "--allow-simulated"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "argument OUT is missing"),
        (["site", "no-such-run"], "unknown run 'no-such-run'"),
        (["site", "tag:nobody"], "has the tag 'nobody'"),
        (["site", "--runs-dir", "nowhere"], "there are no runs in nowhere"),
        (["runs"], "it is not a site of flagperf"),
        (["a-file"], "a-file is not a folder"),
        (["a-file/site"], "cannot make the folder a-file/site"),
    ],
)
def test_what_is_refused(arguments: list[str], words: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "a-file").write_text("")
    assert run_cli(["site", *arguments]) == 2
    assert words in said(capfd)
    assert sorted(path.name for path in folder.iterdir()) == ["a-file", "runs"]


def test_a_folder_that_may_not_be_written_stays_empty(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def write(path: Path, content: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("flagperf_publish.site.site_folder.write_atomically", write)  # root may write everywhere
    assert run_cli(["site", "site"]) == 2
    assert "cannot write the site site: Permission denied; choose another folder" in said(capfd)
    assert not (folder / "site").exists()


def test_without_what_draws_charts_nothing_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run_cli(["site", "site"]) == 2
    assert "flagperf[html]" in said(capfd) and not (folder / "site").exists()


def test_open_shows_the_index(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url))
    assert run_cli(["site", "site", "latest", "--open"]) == 0
    assert opened == [(folder / "site" / "index.html").as_uri()]
    assert "no browser could be started; open site/index.html yourself" in said(capfd)

"""flagperf report: where a page goes, and what is refused."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
from recorded_bundles import IDS, recorded_bundle

from flagperf.bundle.bundle import create_bundle
from flagperf.cli import run_cli
from run_builders import make_run


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(shutil.copytree(recorded_bundle("distilbert"), tmp_path / "bundle"))


def test_a_page_is_printed_into_a_pipe(run: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", run, "--format", "html"]) == 0
    printed = capfd.readouterr().out
    assert printed.startswith("<!doctype html>") and printed.endswith("</html>\n")
    assert printed.count("<svg ") == 5


def test_out_writes_a_file_and_says_so_on_stderr(run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert run_cli(["report", run, "--format", "html", "--lang", "zh", "--out", str(path)]) == 0
    captured = capfd.readouterr()
    assert captured.out == "" and str(path) in captured.err
    assert '<html lang="zh-CN">' in path.read_text()


@pytest.mark.parametrize("form", ["md", "json"])
def test_other_formats_go_into_a_file_as_they_are_printed(
    form: str, run: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["report", run, "--format", form]) == 0
    printed = capfd.readouterr().out
    assert run_cli(["report", run, "--format", form, "--out", str(tmp_path / "file")]) == 0
    assert (tmp_path / "file").read_text() == printed


def test_nothing_is_written_where_there_is_nothing_to_write(run: str, tmp_path: Path) -> None:
    assert run_cli(["report", run, "--format", "csv", "--out", str(tmp_path / "rows")]) == 2
    assert not (tmp_path / "rows").exists()


def test_open_shows_the_file_in_the_browser(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_cli(["report", run, "--format", "html", "--open", "--out", str(tmp_path / "a.html")]) == 0
    assert run_cli(["report", run, "--format", "html", "--open"]) == 0
    assert opened[0] == (tmp_path / "a.html").as_uri()
    made = Path(opened[1].removeprefix("file://"))
    assert made.is_file() and made.parent.parent == tmp_path and str(made) in capfd.readouterr().err


def test_without_a_browser_the_file_is_named(
    run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert run_cli(["report", run, "--format", "html", "--open", "--out", str(tmp_path / "a.html")]) == 0
    assert "no browser could be started" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "md", "--open"], "--open needs --format html"),
        (["--out", "x"], "a table is for the terminal"),
        (["--format", "json", "--lang", "zh"], "add --format md or html"),
        (["--format", "html", "--out", "/nowhere/page.html"], "cannot write /nowhere/page.html"),
    ],
)
def test_what_is_refused(options: list[str], said: str, run: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", run, *options]) == 2
    assert said in capfd.readouterr().err


def test_a_terminal_does_not_get_a_page(run: str) -> None:
    terminal, stdout = pty.openpty()
    command = [sys.executable, "-m", "flagperf", "report", run, "--format", "html"]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    os.close(stdout)
    os.close(terminal)
    assert done.returncode == 2 and "--out page.html" in done.stderr


def test_a_part_of_a_bundle_still_has_a_page(run: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Somebody passed on run.json and environment.json alone."""
    for folder in ("events", "samples", "logs"):
        shutil.rmtree(Path(run) / folder)
    assert run_cli(["report", run, "--format", "html"]) == 0
    captured = capfd.readouterr()
    assert "some charts are missing, because the bundle lacks these files" in captured.out
    speed = json.loads((Path(run) / "run.json").read_text())["metrics"]
    (value,) = [metric["value"] for metric in speed if metric["name"] == "p_core"]
    assert f"{value:.1f}" in captured.out and captured.out.count("<svg ") == 0
    assert "is not verified" in captured.err


def test_the_reference_is_on_the_page(run: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", run, "--format", "html", "--reference", run]) == 0
    assert f"reference {IDS['distilbert']}" in capfd.readouterr().out


def test_a_run_that_is_named_twice_is_printed_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, other = (make_run(f"2026010{day}T000000Z-demo-cpu-1x1-abc123") for day in (1, 2))
    path = create_bundle(tmp_path, one, ())
    create_bundle(tmp_path, other, ())
    named = [one.id, other.id, str(path), "20260101"]
    assert run_cli(["report", *named, "--runs-dir", str(tmp_path), "--format", "json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert [run["id"] for run in printed["runs"]] == [one.id, other.id]

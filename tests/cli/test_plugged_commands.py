"""Commands that other packages add by the entry-point group `flagperf.commands`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagperf.cli import plugged_commands, run_cli

SOURCE = """
import click

@click.command()
@click.argument("name")
def hello(name):
    "Say hello."
    click.echo(f"hello {name}")
"""
ENTRY_POINTS = """
[flagperf.commands]
hello = acme_commands:hello
runs  peek = acme_commands:hello
typo = acme_commands:hallo
lost = acme_lost:hello
text = acme_commands:__name__
report = acme_commands:hello
both = acme_commands:hello
"""


def install(folder: Path, name: str, entry_points: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture(autouse=True)
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "acme_commands.py").write_text(SOURCE)
    install(tmp_path, "acme-commands", ENTRY_POINTS)
    install(tmp_path, "acme-more", "[flagperf.commands]\nboth = acme_commands:hello\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugged_commands.cache_clear()
    yield
    plugged_commands.cache_clear()
    sys.modules.pop("acme_commands", None)


def test_help_shows_who_gives_a_command_and_imports_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--help"]) == 0 and run_cli(["runs", "--help"]) == 0
    lines = capfd.readouterr().out.splitlines()
    shown = [line.split() for line in lines if "(from " in line]
    assert [words[0] for words in shown] == ["both", "hello", "lost", "text", "typo", "peek"]
    assert shown[0] == ["both", "(from", "acme-commands,", "acme-more)"] and shown[-1][1:] == [
        "(from",
        "acme-commands)",
    ]
    assert "acme_commands" not in sys.modules


def test_a_command_and_a_word_of_a_group_run(capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["hello", "you"], ["runs", "peek", "you"]):
        assert run_cli(command) == 0
        assert capfd.readouterr().out == "hello you\n"
    assert run_cli(["runs", "peek"]) == 2
    assert "NAME is missing; see `" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("typo", "acme_commands:hallo of acme-commands cannot be imported: AttributeError"),
        ("lost", "acme_lost:hello of acme-commands cannot be imported: ModuleNotFoundError"),
        ("text", "acme_commands:__name__ of acme-commands is not a click command"),
        ("both", "it is claimed by acme-commands, acme-more; uninstall all of them but one"),
    ],
)
def test_a_broken_one_is_one_command_with_a_reason(word: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli([word, "--any", "words"]) == 3
    assert f"`flagperf {word}` is not available: {reason}" in capfd.readouterr().err


def test_no_package_takes_a_command_of_flagperf(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", "--help"]) == 0
    assert "Print runs for the terminal" in capfd.readouterr().out

"""Text of a bundle never reaches the terminal as an escape sequence, in whatever command and however it is wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from fuzz_harness import RAW, check, run
from hostile import OSC_52
from recorded_bundles import FOLDER, IDS

from flagperf.bundle.bundle import read_bundle, seal, write_run
from flagperf.bundle.run_record import STORE_SCHEMA, Run
from flagperf.cli.completers import complete_run
from flagperf.cli.output import echo_styled
from flagperf.errors import BadInput
from flagperf.events import AnyEvent
from flagperf.kinds import KINDS
from flagperf.report.sections.result_tables import check_layout
from flagperf.spec.node_facts import NodeFacts
from flagperf.text import one_line, safe_json, visible

RECORDED = FOLDER
POISON = f"{OSC_52}\x1b[2J\x9b31m\x90q\u202e\x7f\nforged line\u2028"
RUN = IDS["llama2_7b_finetune"]
SIMULATED = IDS["simulated"]
FAILED = IDS["unsupported"]


def poison(path: Path) -> int:
    """Appends to every string of the bundle that may have any value; the count of those."""
    run_file = path / "run.json"
    content = json.loads(run_file.read_text())
    count = _poison_strings(content, lambda changed: _is_run(msgspec.convert(changed, Run)))
    run_file.write_text(json.dumps(content))
    nodes = path / "environment.json"
    content = json.loads(nodes.read_text())
    count += _poison_strings(content, lambda changed: msgspec.convert(changed, tuple[NodeFacts, ...]))
    nodes.write_text(json.dumps(content))
    for events in (*path.glob("events/*.jsonl"), *path.glob("samples/*.jsonl")):
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        for line in lines[:40]:
            count += _poison_strings(line, lambda changed: msgspec.convert(changed, AnyEvent))
        events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return count


def _is_run(changed: Run) -> None:
    if changed.manifest.kind not in KINDS or changed.job.kind not in KINDS:
        raise ValueError("its kind cannot be any text")
    try:
        check_layout(changed.manifest)
    except BadInput as error:
        raise ValueError("its page has columns and rows of these names") from error


def _poison_strings(content: Any, check_it: Callable[[Any], object]) -> int:
    count = 0
    for owner, key in list(_strings(content)):
        before = owner[key]
        owner[key] = before + POISON
        try:
            check_it(content)
            count += 1
        except ValueError:  # one of few words; msgspec.ValidationError is a ValueError
            owner[key] = before
    return count


def _strings(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        if isinstance(inner, str):
            yield value, key
        yield from _strings(inner)


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of today's schema: converted, then poisoned."""
    folder = tmp_path_factory.mktemp("poisoned")
    for name in (RUN, SIMULATED, FAILED):
        shutil.copytree(RECORDED / name, folder / name)
        write_run(folder / name, msgspec.structs.replace(read_bundle(folder / name).run, schema=STORE_SCHEMA))
        assert poison(folder / name) > 100
        seal(folder / name)
    return folder


@pytest.mark.parametrize("name", [RUN, SIMULATED, FAILED])
@pytest.mark.parametrize(
    "command",
    [
        "runs list --runs-dir {runs}",
        "runs list --runs-dir {runs} --json",
        "runs show {run}",
        "runs show {run} --json",
        "runs path {run}",
        "runs verify {run}",
        "runs verify {run} --json",
        "runs curve {run}",
        "runs curve {run} --json",
        "runs sign {run}",
        "report {run}",
        "report {run} --format json",
        "report {run} --format md --allow-simulated",
        "report {run} --format md --allow-simulated --lang zh",
        "report {run} --reference {run}",
        "report {run} {other}",
        "align {run} {run}",
        "align {run} {other}",
        "align {run} {other} --json",
    ],
)
def test_no_command_prints_what_a_bundle_hides(poisoned: Path, command: str, name: str) -> None:
    words = [word.format(runs=poisoned, run=poisoned / name, other=RECORDED / RUN) for word in command.split()]
    printed = check(words, name)
    lines = printed.err if command.startswith("report") else printed.out + printed.err  # a report is folded
    assert "show" in command or not re.search("^forged line", lines, re.MULTILINE)


@pytest.mark.parametrize("command", [["runs", "show"], ["report"]])
def test_in_color_only_styles_are_escape_sequences(
    poisoned: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    printed = run([*command, str(poisoned / FAILED)])
    assert "\x1b[1m" in printed.out
    assert not RAW.search(re.sub("\x1b\\[[0-9]+m", "", printed.out + printed.err))


def test_what_is_hidden_is_made_visible(poisoned: Path) -> None:
    assert "\\x1b]52;c;aGk=\\x07" in check(["runs", "list", "--runs-dir", str(poisoned)]).out
    assert "\\x1b]52;c;aGk=\\x07" in check(["runs", "verify", str(poisoned / FAILED)]).out
    assert "\\u001b]52" in check(["runs", "show", str(poisoned / FAILED), "--json"]).out


def test_a_curve_that_is_hidden_in_errors_is_made_visible(tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    title = "# flagperf loss curve 1\n"
    for text in (
        f"{title}# case: \x1b]52;c;aGk=\x07\nstep,loss\n1,2\n",
        f'{title}# case: "x"\nstep,{OSC_52}\n1,2\n',
        f'{title}# case: "x"\nstep,loss\n1,{OSC_52}\n',
        f"# flagperf loss curve {OSC_52}\n",
        f'{title}# case: "\\u001b]52;c;aGk=\\u0007"\nstep,loss\n1,2\n',
    ):
        curve.write_text(text)
        assert check(["align", str(curve), str(RECORDED / RUN)]).code == 2
    assert "\\x1b]52;c;aGk=\\x07" in check(["align", str(curve), str(RECORDED / RUN)]).err


def test_a_folder_whose_name_controls_a_terminal_is_printed_harmlessly(tmp_path: Path) -> None:
    folder = tmp_path / f"{OSC_52}\udcff"
    shutil.copytree(RECORDED / FAILED, folder / FAILED)
    for command in (["runs", "verify", "latest"], ["report", "latest"], ["runs", "show", "latest"]):
        assert check([*command, "--runs-dir", str(folder)]).code == 0
    for command in (["runs", "path", "latest", "--json"], ["plan", "distilbert", "--data-dir", str(folder)]):
        assert check([*command, *(["--runs-dir", str(folder)] if command[0] == "runs" else [])]).code == 2
    (folder / FAILED / "run.json").unlink()
    assert "\\x1b]52" in check(["report", FAILED, "--runs-dir", str(folder)]).err


def test_a_folder_of_data_below_a_name_that_is_not_utf8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "\udcff" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "\udcff")
    printed = check(["plan", "distilbert", "--data-dir", "data"])
    assert printed.code == 2 and "the name of a folder above it is not UTF-8" in printed.err


def test_the_shell_is_offered_no_run_that_controls_it(poisoned: Path) -> None:
    command = click.Command("x", params=[click.Argument(["run"])])
    context = click.Context(command)
    context.params["runs_dir"] = str(poisoned)
    assert [item.value for item in complete_run(context, command.params[0], "")] == ["latest"]


# --- the functions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain, 名前, é", "plain, 名前, é"),
        ("  indented\n", "  indented"),
        ("a\n  b\r\nc\td", "a b c d"),
        ("\x1b[31m\x9b\x7f", "\\x1b[31m\\x9b\\x7f"),
        ("\u202e\u2066\u061c", "\\u202e\\u2066\\u061c"),
        ("\udc80", "\\udc80"),
    ],
)
def test_a_line_is_one_line_without_controls(text: str, line: str) -> None:
    assert one_line(text) == line


def test_json_keeps_its_value() -> None:
    value = {"a": [POISON, "名前"]}
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    assert RAW.search(text) and not RAW.search(safe_json(text))
    assert json.loads(safe_json(text)) == value


def test_only_styles_survive_in_color(capfd: pytest.CaptureFixture[str]) -> None:
    echo_styled("\x1b[1mbold\x1b[0m\x1b[2J\x1b]0;title\x07\n", color=True)
    assert capfd.readouterr().out == "\x1b[1mbold\x1b[0m\\x1b[2J\\x1b]0;title\\x07\n"
    echo_styled("\x1b[1mbold\n", color=False)
    assert capfd.readouterr().out == "\\x1b[1mbold\n"
    assert visible("a\nb") == "a\\x0ab"

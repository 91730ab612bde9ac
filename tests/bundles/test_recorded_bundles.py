"""Recorded bundles of schema 1 (record.py makes them): everything that reads bundles works on them for ever."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from recorded_bundles import FOLDER, HERE, IDS, recorded_bundle

from flagperf.bundle.bundle import file_digests, read_bundle, write_manifest
from flagperf.bundle.listing import list_runs
from flagperf.bundle.verify import verify_bundle
from flagperf.cli import cli, run_cli
from flagperf.errors import BadInput, FlagPerfError
from flagperf.kinds import KINDS

BUNDLES = [recorded_bundle(name) for name in IDS]
UNFINISHED = recorded_bundle("parent_killed")
"""It has no ending and no MANIFEST."""
CASES = Path(__file__).parents[2] / "cases" / "flagperf_cases"
FINISHED = [path for path in BUNDLES if path != UNFINISHED]

each_bundle = pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
each_finished = pytest.mark.parametrize("bundle", FINISHED, ids=lambda path: path.name)


def flagperf(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_no_recorded_file_was_edited() -> None:
    listed = [line.split("  ") for line in (HERE / "v1.sha256").read_text().splitlines()]
    files = {str(path.relative_to(HERE)): path for path in FOLDER.rglob("*") if path.is_file()}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == {
        name: digest for digest, name in listed
    }


def test_every_case_and_every_ending_was_recorded() -> None:
    runs = [read_bundle(path).run for path in BUNDLES]
    cases = {path.parent.name for path in CASES.glob("*/case.toml")}
    assert {run.manifest.name for run in runs} == {*cases, "trouble"}
    assert {run.ending.status if run.ending else None for run in runs} == {
        "succeeded", "failed", "out_of_memory", "timed_out", "unsupported", "target_missed", "interrupted", None,
    }  # fmt: skip
    assert {run.simulated for run in runs} == {True, False}


@each_finished
def test_it_verifies(bundle: Path) -> None:
    verification = verify_bundle(bundle)
    assert verification.problems == ()
    has_steps = KINDS[read_bundle(bundle).run.manifest.kind].has_steps
    assert verification.num_metrics >= (38 if has_steps else 15)


def test_one_that_was_never_finished_says_so() -> None:
    assert verify_bundle(UNFINISHED).problems == ("MANIFEST is missing: the run was never finished",)


@each_bundle
@pytest.mark.parametrize("form", ["table", "json", "md"])
def test_it_is_reported(bundle: Path, form: str) -> None:
    run = read_bundle(bundle).run
    simulated = ["--allow-simulated"] if form == "md" else []
    done = flagperf("report", bundle, "--format", form, *simulated)
    assert done.exit_code == 0, done.output
    assert run.job.precision.is_per_row or run.job.precision.name in done.stdout
    if form == "json":
        assert json.loads(done.stdout)["runs"][0]["id"] == run.id


@each_bundle
def test_its_rows_are_listed_as_csv(bundle: Path) -> None:
    rows = read_bundle(bundle).run.rows
    done = flagperf("report", bundle, "--format", "csv")
    assert (done.exit_code == 0) == bool(rows), done.output
    assert not rows or len(done.stdout.splitlines()) == 1 + len(rows)


@each_bundle
def test_its_page_is_written_in_chinese(bundle: Path) -> None:
    done = flagperf("report", bundle, "--format", "md", "--lang", "zh", "--allow-simulated")
    assert done.exit_code == 0, done.output
    assert "运行情况" in done.stdout
    run = read_bundle(bundle).run
    if KINDS[run.manifest.kind].has_steps:  # pages of rows quote what the case says of them
        assert english_sentences(done.stdout) == []


FOREIGN = re.compile(
    r"<https?://[^>]*>|`[^`]*`|来源：[^；]*；|out of memory|you tried to allocate|unmerged pull request|"
    "this case was asked to fail|this torch is too old for the case"
)
"""Links, commands, sources that are quoted, messages of torch and of the case."""


def english_sentences(page: str) -> list[str]:
    """Return where three English words follow each other. Names, units and codes are shorter, or have no spaces."""
    return re.findall(r"[A-Za-z][a-z]+(?:[ ,;]+[a-z]{2,}){2,}", FOREIGN.sub("", page))


@each_bundle
def test_it_is_shown(bundle: Path) -> None:
    done = flagperf("runs", "show", bundle)
    assert done.exit_code == 0, done.output


def test_all_are_listed() -> None:
    lines = list_runs(FOLDER)
    assert [line.id for line in lines] == sorted(IDS.values())
    assert "unreadable" not in {line.status for line in lines}


@each_finished
def test_a_training_run_follows_itself(bundle: Path) -> None:
    run = read_bundle(bundle).run
    if run.manifest.kind != "training" or run.ending is None or run.ending.status not in ("succeeded", "target_missed"):
        with pytest.raises(FlagPerfError, match="has no loss curve"):
            flagperf_raising("align", bundle, bundle, "--rule", "exact")
        return
    has_diverged = bundle == recorded_bundle("glm_diverged")
    assert run_cli(["align", str(bundle), str(bundle), "--rule", "exact", "-q"]) == (7 if has_diverged else 0)
    assert flagperf("runs", "curve", bundle).stdout.startswith("# flagperf loss curve 1\n")


def flagperf_raising(*arguments: object) -> None:
    cli.main([str(argument) for argument in arguments], prog_name="flagperf", standalone_mode=False)


def test_a_recorded_run_of_two_nodes_shows_its_spread_in_both_languages() -> None:
    bundle = recorded_bundle("llama2_70b_2x2")
    for lang, title, over in (
        ("en", "Spread over nodes and devices", "2 nodes"),
        ("zh", "各节点与设备之间的差异", "2个节点"),
    ):
        text = flagperf("report", bundle, "--format", "md", "--lang", lang).stdout
        assert over in text.split(title)[1].split("###")[0]
    assert "Spread over nodes and devices" in flagperf("report", bundle).stdout


# --- what was recorded before the first release ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def unreleased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of an older form, in which also a field that lists read has another type."""
    path = shutil.copytree(recorded_bundle("distilbert"), tmp_path_factory.mktemp("runs") / IDS["distilbert"])
    content = json.loads((path / "run.json").read_text()) | {"schema": 2}
    content["job"]["precision"] = "fp32"
    (path / "run.json").write_text(json.dumps(content))
    write_manifest(path, file_digests(path))
    return path


UNRELEASED = "was recorded by an unreleased version (schema {}); run the case again"


def test_a_bundle_of_an_unreleased_version_is_one_line_with_its_reason_in_a_list(unreleased: Path) -> None:
    listed = flagperf("runs", "list", "--runs-dir", unreleased.parent, "--json")
    (line,) = json.loads(listed.stdout)
    assert (listed.exit_code, line["status"], line["id"]) == (0, "unreadable", unreleased.name)
    assert UNRELEASED.format(2) in line["problem"]


@pytest.mark.parametrize(
    "command",
    [
        "runs show RUN", "runs watch RUN", "runs curve RUN", "runs verify RUN", "runs sign RUN", "runs end RUN",
        "runs pack RUN -o a.tgz", "runs redact RUN --out copy", "report RUN", "report RUN --format html",
        "compare RUN GOOD", "compare GOOD RUN", "align RUN GOOD", "align GOOD RUN", "export jsonl RUN",
        "export csv RUN", "site out RUN", "site out",
    ],
)  # fmt: skip
def test_other_commands_refuse_a_bundle_of_an_unreleased_version(
    unreleased: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLAGPERF_RUNS_DIR", str(unreleased.parent))
    named = {"RUN": str(unreleased), "GOOD": str(recorded_bundle("distilbert_1x2"))}
    assert run_cli([named.get(word, word) for word in command.split()]) == 2
    printed = capfd.readouterr()
    assert printed.out == "" and printed.err.splitlines()[-1].endswith(UNRELEASED.format(2))
    assert "Traceback" not in printed.err and list(tmp_path.iterdir()) == []


def test_schema_1_without_versions_of_metrics_was_not_released_either(tmp_path: Path) -> None:
    content = json.loads((recorded_bundle("distilbert") / "run.json").read_text())
    del content["metric_versions"]
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(BadInput) as refused:
        read_bundle(tmp_path)
    assert str(refused.value) == f"{tmp_path / 'run.json'} {UNRELEASED.format(1)}"

"""flagperf report --reference: the verdict of `align` as a result of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from curve_bundles import FALLING, make_bundle, scaled

from flagperf.cli import run_cli


@pytest.fixture(autouse=True)
def folder_with_runs(empty_folder: Path) -> None:
    make_bundle("reference", FALLING)
    make_bundle("near", scaled(1.01))
    make_bundle("far", scaled(1.5))
    make_bundle("short", FALLING[:25])


def printed(command: str, capfd: pytest.CaptureFixture[str]) -> str:
    assert run_cli([*command.split(), "-q"]) == 0
    return capfd.readouterr().out


def cells(page: str) -> list[str]:
    """The verdicts on a page, without their notes."""
    lines = [line for line in page.splitlines() if line.startswith(("| A, ", "| A单机"))]
    return [line.split("|")[2].strip().partition("[^")[0] for line in lines]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_has_the_verdict_of_every_run(lang: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A run that does not follow is a result: the page is printed, and the command ends with 0."""
    page = printed(f"report near far short --reference reference --format md --lang {lang}", capfd)
    assert sorted(cells(page)) == ["/", "False", "True"]
    steps = {"en": "RUN has steps 1 to 25, REFERENCE has 1 to 30", "zh": "运行有第1至25步，参考有第1至30步"}
    assert steps[lang] in page


def test_an_exported_curve_is_a_reference_and_keeps_its_run_s_name(capfd: pytest.CaptureFixture[str]) -> None:
    Path("curve.csv").write_text(printed("runs curve reference", capfd))
    page = printed("report near --reference curve.csv --format md", capfd)
    assert cells(page) == ["True"]
    assert "reference reference (acme A 1x1); mean relative error 1%" in page


def test_a_curve_of_another_program_is_called_by_its_file(capfd: pytest.CaptureFixture[str]) -> None:
    Path("theirs").mkdir()
    rows = "".join(f"{n},{loss!r}\n" for n, loss in enumerate(FALLING, start=1))
    Path("theirs/megatron.csv").write_text(f'# flagperf loss curve 1\n# case: "toy"\nstep,loss\n{rows}')
    page = printed("report near --reference theirs/megatron.csv --format md --lang zh", capfd)
    assert "参考megatron.csv（并非出自某次运行）" in page
    assert "因一方未说明而未比较：用例版本、training.seed、模型、数据、每步样本数" in page


def test_another_rule_and_its_tolerance_decide(capfd: pytest.CaptureFixture[str]) -> None:
    command = "report near --reference reference --format md --rule exact"
    assert cells(printed(command, capfd)) == ["False"]
    page = printed(f"{command} --tolerance 0.02", capfd)
    assert cells(page) == ["True"]
    assert "by rule exact (relative error of at most 0.02 at every step)" in page
    assert "mean relative error 0.01, largest 0.01 at step" in page


def test_json_has_what_align_prints(capfd: pytest.CaptureFixture[str]) -> None:
    (run,) = json.loads(printed("report far --reference reference --json", capfd))["runs"]
    assert run_cli(["align", "far", "reference", "--json", "-q"]) == 7
    verdict = run["metrics"]["loss_aligned"]
    assert verdict["value"] == 0
    assert verdict["inputs"] == {"reference_name": "reference", **json.loads(capfd.readouterr().out)}


def test_a_table_says_the_verdict_and_its_rule(capfd: pytest.CaptureFixture[str]) -> None:
    table = printed("report near short --reference reference", capfd)
    assert "near: loss aligned True by rule flagperf-2pct" in table
    assert "short: no verdict on loss alignment: not_applicable" in table


def test_a_step_without_a_finite_loss_is_named_and_fails_the_check(capfd: pytest.CaptureFixture[str]) -> None:
    assert "the reference is this run itself" in printed("report near --reference near --format md", capfd)
    make_bundle("diverged", [*FALLING[:28], None, None])
    page = printed("report diverged --reference reference --format md", capfd)
    assert cells(page) == ["False"]
    assert "steps that cannot be compared, which fails the check: 2, the first is step 29" in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("near --reference nothing.csv", ["there is no file nothing.csv", "unknown run 'nothing.csv'"]),
        ("near far --reference short", ["near: RUN has steps", "far: RUN has steps", "same case, model, data"]),
        ("near --reference half", ["step 1 has 8 samples in RUN, 4 in REFERENCE"]),
        ("lossless --reference near", ["lossless: it has no loss curve: not_measured, no loss was recorded"]),
        ("near --reference lossless", ["lossless has no loss curve: not_measured"]),
        ("near --rule exact", ["add --reference"]),
    ],
)
@pytest.mark.parametrize("form", ["table", "md", "json"])
def test_a_reference_that_no_run_can_be_compared_with_prints_nothing(
    options: str, words: list[str], form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make_bundle("half", FALLING, samples=4)
    make_bundle("lossless", [None] * 30, diverged=False)
    assert run_cli(["report", *options.split(), "--format", form, "-q"]) == 2
    caught = capfd.readouterr()
    assert caught.out == ""
    for word in words:
        assert word in caught.err

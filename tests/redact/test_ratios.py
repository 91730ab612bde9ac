"""A copy with ratios in place of values: nothing in it is a measurement, and the originals can be proved later."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from recorded_bundles import FOLDER, recorded_bundle

from flagperf.cli import run_cli
from flagperf.errors import BadInput
from flagperf.redact.check import redaction_problems
from flagperf.redact.commitments import Reference, read_key
from flagperf.redact.copying import Redacted, Wishes, redact
from flagperf.redact.ratios import published_reference, reference_run, stated_reference
from flagperf.store.bundle import read_bundle, write_manifest
from flagperf.store.listing import list_runs
from flagperf.store.witness import file_digests
from flagperf.verify import verify_bundle

RECORDED = FOLDER
RUN = recorded_bundle("distilbert")
OTHER = recorded_bundle("distilbert_1x2")
DOUBTFUL = (
    recorded_bundle("simulated"),
    recorded_bundle("operators_recorded"),
    recorded_bundle("gemm"),
)
"""`unsteady` and a memory that is not possible; `busy_host` and `few_repeats`; figures of rows."""


@pytest.fixture
def copy(tmp_path: Path) -> Redacted:
    reference = reference_run(read_bundle(RUN).run, read_bundle(OTHER).run)
    return redact(RUN, tmp_path / "out", Wishes(reference=reference), tmp_path / "key")


def test_a_ratio_is_the_value_over_that_of_the_reference(copy: Redacted) -> None:
    before, base, now = (read_bundle(Path(path)).run.metric("p_core") for path in (RUN, OTHER, copy.path))
    assert before and base and now and before.value and base.value and before.interval
    assert now.inputs["ratio"] == before.value / base.value
    assert now.inputs["ratio_low"] == before.interval.low / base.value
    assert (now.value, now.reason, now.interval) == (None, "withheld", None)
    assert now.detail.startswith(f"{before.value / base.value:.4g} times the reference, ")


def test_no_absolute_value_and_no_raw_file_is_left(copy: Redacted) -> None:
    path, original = Path(copy.path), read_bundle(RUN).run
    assert sorted(each.name for each in path.rglob("*")) == [
        "MANIFEST",
        "environment.json",
        "redaction.json",
        "run.json",
    ]
    run = read_bundle(path).run
    assert all(metric.value is None for metric in run.metrics)
    text = (path / "run.json").read_text() + (path / "redaction.json").read_text()
    values = {str(metric.value) for metric in original.metrics if isinstance(metric.value, float)} - {"0.0", "1.0"}
    assert len(values) > 10
    assert [value for value in values if value in text] == []


def test_every_command_says_that_these_are_ratios(copy: Redacted, capfd: pytest.CaptureFixture[str]) -> None:
    result = verify_bundle(Path(copy.path))
    assert (result.problems, result.num_metrics, result.redacted) == ((), 0, "ratios")
    assert run_cli(["runs", "verify", copy.path]) == 0
    assert "verified as far as ratios can be: 0 metrics recomputed" in capfd.readouterr().out
    assert run_cli(["report", copy.path]) == 0
    assert "every value is a ratio to a reference that is not shown" in capfd.readouterr().out.replace("\n", " ")
    assert run_cli(["report", copy.path, "--format", "md", "--lang", "zh"]) == 0
    assert "所有数值均为与未公开参考值之比" in capfd.readouterr().out
    assert run_cli(["runs", "list", "--runs-dir", str(Path(copy.path).parent)]) == 0
    assert "succeeded (redacted: ratios only)" in capfd.readouterr().out
    assert run_cli(["runs", "curve", copy.path]) == 2
    assert "no loss curve: withheld, a redacted copy with ratios has no raw files" in capfd.readouterr().err
    assert run_cli(["export", "csv", "--curves", copy.path]) == 0
    assert "has no steps to export: a redacted copy with ratios has no raw files" in capfd.readouterr().err
    assert [line.redacted for line in list_runs(Path(copy.path).parent)] == ["ratios"]


def marks_and_doubts(path: Path, capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, list[str]], set[str]]:
    assert run_cli(["report", str(path), "--format", "json"]) == 0
    run = json.loads(capfd.readouterr().out)["runs"][0]
    marks = {name: metric["marks"] for name, metric in run["metrics"].items() if metric.get("marks")}
    return marks, {doubt["rule"] for doubt in run["doubts"]}


@pytest.mark.parametrize("bundle", DOUBTFUL, ids=lambda path: path.name)
def test_marks_and_doubts_are_those_of_the_original(
    bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """None of the rules can be applied to ratios: `unsteady` is about the interval."""
    made = redact(bundle, tmp_path / "out", Wishes(reference=Reference("p", {"p_core": 1800.0})), tmp_path / "key")
    before, now = marks_and_doubts(bundle, capfd), marks_and_doubts(Path(made.path), capfd)
    assert before == now
    assert all(before)
    for form in ("table", "md", "html"):
        assert run_cli(["report", made.path, "--format", form, "--allow-simulated"]) == 0
        text = capfd.readouterr().out
        assert [mark for marks in now[0].values() for mark in marks if mark not in text] == []
        assert [rule for rule in now[1] if rule not in text] == []
    assert list(redaction_problems(Path(made.path), bundle, read_key(Path(made.key)))) == []


def test_a_mark_stands_beside_its_ratio(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = redact(DOUBTFUL[0], tmp_path / "out", Wishes(reference=Reference("p", {"p_core": 1800.0})), tmp_path / "key")
    assert run_cli(["report", made.path]) == 0
    printed = " ".join(capfd.readouterr().out.split())
    assert re.search(r"p_core n/a withheld \(\D+\): \S+ times the reference, \S+ to \S+; marks: unsteady ", printed)
    assert "unsteady: found in the original, whose figures are not shown: p_train, p_core, token/p/s" in printed


def test_the_original_and_the_key_prove_every_value(copy: Redacted) -> None:
    key = read_key(Path(copy.key))
    assert list(redaction_problems(Path(copy.path), RUN, key)) == []
    assert key.reference is not None
    values = {**key.reference.values, "p_core": key.reference.values["p_core"] * 2}
    lie = msgspec.structs.replace(key, reference=msgspec.structs.replace(key.reference, values=values))
    found = list(redaction_problems(Path(copy.path), RUN, lie))
    assert "the commitment to reference p_core is to another value" in found
    assert "run.json is not what redaction makes of the original" in found


def test_a_commitment_that_was_taken_out_is_missed(copy: Redacted) -> None:
    path = Path(copy.path)
    found = json.loads((path / "redaction.json").read_text())
    taken = [found["replaced"].pop()["name"], found["withheld"].pop()["name"]]
    (path / "redaction.json").write_text(json.dumps(found))
    write_manifest(path, file_digests(path))
    problems = list(redaction_problems(path, RUN, read_key(Path(copy.key))))
    assert [problem.split()[-1] for problem in problems if problem.startswith("there is no commitment to ")] == taken


def test_a_value_that_somebody_puts_in_is_a_problem(copy: Redacted) -> None:
    path = Path(copy.path)
    run = json.loads((path / "run.json").read_text())
    run["metrics"][5].update(value=9999.0)
    (path / "run.json").write_text(json.dumps(run))
    assert f"{run['metrics'][5]['name']}: a copy with ratios has no absolute value" in verify_bundle(path).problems
    (path / "events").mkdir()
    assert "events does not belong to a copy with ratios" in verify_bundle(path).problems


def test_the_reference_has_to_be_of_the_same_experiment() -> None:
    run, glm = read_bundle(RUN).run, read_bundle(recorded_bundle("glm")).run
    with pytest.raises(BadInput, match=r"is no reference for .*: case glm, profile tiny is not case distilbert"):
        reference_run(run, glm)


def test_a_published_result_is_named_as_for_a_comparison(tmp_path: Path) -> None:
    manifest = read_bundle(RUN).run.manifest
    found = published_reference(manifest, "A100 2x8", tmp_path)
    assert (found.name, found.values["p_whole"]) == ("distilbert-nvidia-a100-sxm4-40gb-2x8-fp32-bs=96", 3531.1)
    with pytest.raises(BadInput, match="unknown published result 'H100'"):
        published_reference(manifest, "H100", tmp_path)


def test_the_name_of_a_published_result_may_have_an_equals_sign(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = ["runs", "redact", str(RUN), "--out", str(tmp_path / "out"), "--key", str(tmp_path / "key.json")]
    assert run_cli([*made, "--relative-to", "published:A100 1x8 bs=96"]) == 0
    capfd.readouterr()
    assert '"distilbert-nvidia-a100-sxm4-40gb-1x8-fp32-bs=96"' in (tmp_path / "key.json").read_text()


def test_stated_values_are_metrics_and_numbers() -> None:
    run = read_bundle(RUN).run
    assert stated_reference(run, ("p_core=1000", "token/p/s=2e3")).values == {"p_core": 1000.0, "token/p/s": 2000.0}
    with pytest.raises(BadInput, match=r"unknown metric 'p_cor'"):
        stated_reference(run, ("p_cor=1000",))
    for text in ("zero", "0", "-3", "-0.0", "nan", "inf", ""):
        with pytest.raises(BadInput, match=r"is not a number|a reference is above 0, and \S+ is not"):
            stated_reference(run, (f"p_core={text}",))


def test_the_command_makes_and_checks_a_copy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, key = tmp_path / "out", tmp_path / "key.json"
    made = ["runs", "redact", str(RUN), "--out", str(out), "--key", str(key)]
    assert run_cli([*made, "--relative-to", "p_core=1000"]) == 0
    printed = capfd.readouterr()
    assert printed.out == f"{out}/{RUN.name}-ratios\n"
    assert f"key: {key}; whoever has it can undo the redaction" in printed.err
    assert run_cli(["runs", "check-redaction", f"{out}/{RUN.name}-ratios", str(RUN), "--key", str(key)]) == 0
    assert capfd.readouterr().out.endswith(f"was made of {RUN.name}, and shows nothing else\n")
    assert run_cli(["runs", "check-redaction", f"{out}/{RUN.name}-ratios", str(OTHER), "--key", str(key)]) == 3
    assert capfd.readouterr().out.endswith(f"is not the redacted {OTHER.name}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--also", "ab"], "too short"),
        (["--relative-to", "published:H100"], "unknown published result 'H100'"),
        (["--relative-to", "p_core=1", "--relative-to", "latest"], "takes one run, one published result, or several"),
        (["--relative-to", "nowhere"], "unknown run 'nowhere'"),
    ],
)
def test_wrong_wishes_leave_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    command = ["runs", "redact", RUN.name, "--runs-dir", str(RECORDED), "--out", str(tmp_path / "out"), *arguments]
    assert run_cli([*command, "--key", str(tmp_path / "key")]) == 2
    assert words in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"schema":1}'])
def test_a_key_that_is_none_is_called_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str | None, copy: Redacted
) -> None:
    if content is not None:
        (tmp_path / "bad").write_text(content)
    assert run_cli(["runs", "check-redaction", copy.path, str(RUN), "--key", str(tmp_path / "bad")]) == 2
    assert "bad" in capfd.readouterr().err

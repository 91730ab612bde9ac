"""A user's mistake: one message that says what, where and what to do, the exit code, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagperf.cli import run_cli
from flagperf.cli.options import expand_set

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("run distilbrt", 2, ["unknown case 'distilbrt'", "did you mean distilbert?"]),
        ("run distilbert --vendor cpuu", 2, ["unknown vendor 'cpuu'", "did you mean cpu"]),
        ("run distilbert --profile tinny", 2, ["unknown profile of case distilbert 'tinny'", "did you mean tiny?"]),
        ("run distilbert --profile standard", 2, ["give --data-dir", "cases show distilbert"]),
        ("run distilbert --profile standard --data-dir nowhere", 2, ["nowhere"]),
        ("run distilbert --set training.batchsize=8", 2, ["'training.batchsize'", "did you mean training.batch_size"]),
        ("run distilbert --set training.batch_size=many", 2, ["takes a whole number", "'many'", "--set"]),
        ("run distilbert --set training.batch_size=0", 2, ["training.batch_size must be at least 1"]),
        ("run distilbert --set training", 2, ["--set takes key=value"]),
        ("run distilbert --set model.heads=5", 2, ["heads"]),
        ("run distilbert --precision fp8", 2, ["unknown precision 'fp8'"]),
        ("run distilbert --precision tf32", 6, ["vendor cpu does not support precision tf32"]),
        ("run distilbert --nodes 0", 2, ["--nodes: 0 is not in the range x>=1; see `"]),
        ("run distilbert --nodes 9999999", 2, ["--nodes must be at least 1 and at most 100,000; got 9999999"]),
        ("run distilbert --parallel TP2", 2, ["has one layout", "leave --parallel out"]),
        ("run llama2_70b --parallel 4x8", 2, ["--parallel takes TP, PP and DP", "'4x8'"]),
        ("run llama2_70b --vendor cpu --parallel TP2PP2", 2, ["needs a multiple of 4 devices", "--devices 1 is 1"]),
        (
            "run llama2_70b --vendor cpu --devices 4 --parallel TP4",
            2,
            ["parallel.tp=4 does not divide model.kv_heads=2"],
        ),
        ("plan distilbert --device-model A1", 2, ["no installed adapter knows it", "Known models: ", "metax: C500"]),
        ("plan distilbert --device-model Z100L --precision tf32", 6, ["Z100L does not support precision tf32"]),
        ("plan llama2_70b --device-model C500", 2, ["needs a multiple of 32 devices"]),
        ("run distilbert --devices 65", 2, ["--devices 65", "64 visible cpu devices"]),
        ("run distilbert --config nowhere.toml", 2, ["nowhere.toml"]),
        ("run distilbert --cluster slurmm", 2, ["unknown cluster 'slurmm'", "did you mean slurm?"]),
        ("run distilbert --cluster-option hosts=a", 2, ["unknown option of cluster local 'hosts'; there are none"]),
        ("plan distilbert --cluster-option hosts", 2, ["--cluster-option takes key=value", "got 'hosts'"]),
        ("run distilbert --interface ib0", 2, ["--interface ib0: the nodes of cluster local are this machine"]),
        ("plan distilbert --interface ib0 --nodes 2", 2, ["meet on the loopback interface; leave it out"]),
        ("nodes check --interface ib0", 2, ["leave it out, or choose another --cluster"]),
        ("run distilbert --runs-dir /proc/nothing", 2, ["/proc/nothing", "--runs-dir"]),
        ("run distilbert --timeout 0", 2, ["--timeout"]),
        ("run distilbert --timeout nan", 2, ["--timeout: nan is not a finite number in the range "]),
        (
            "run distilbert --sample-seconds inf",
            2,
            ["--sample-seconds: inf is not a finite number in the range x>0; see `"],
        ),
        ("runs unpack a.tar --max-gib 1e308", 2, ["--max-gib: 1e+308 is not in the range"]),
        ("align latest latest --tolerance nan", 2, ["--tolerance: nan is not a finite number in the range "]),
        ("run", 2, ["argument CASE is missing; see `", "flagperf run --help`"]),
        ("run distilbert --nodes", 2, ["option '--nodes' requires an argument; see `", "flagperf run --help`"]),
        (
            "run distilbert --devises 2",
            2,
            ["unknown option '--devises'; did you mean --devices", "flagperf run --help`"],
        ),
        ("runs list --jsn", 2, ["unknown option '--jsn'; did you mean --json", "flagperf runs list --help`"]),
        ("runs verfy", 2, ["unknown command 'verfy'; did you mean verify?", "flagperf runs --help`"]),
        ("cases list more", 2, ["unexpected extra argument (more)", "flagperf cases list --help`"]),
        ("completion tcsh", 2, ["SHELL: 'tcsh' is not one of 'bash', 'zsh', 'fish'"]),
        ("rum distilbert", 2, ["unknown command 'rum'; did you mean run", "flagperf --help`"]),
        ("runs show latest", 2, ["there are no runs in runs"]),
        ("report latest", 2, ["there are no runs in runs"]),
        ("report nothing --runs-dir elsewhere", 2, ["there are no runs in elsewhere"]),
        ("align latest latest", 2, ["there is no file latest", "there are no runs in runs"]),
        ("report latest --lang fr", 2, ["--lang"]),
        ("report latest --lang zh", 2, ["--lang zh is for pages", "--format md"]),
        ("report latest --format md --json", 2, ["--json and --format md", "give one of them"]),
        ("run distilbert --record-steps 2", 2, ["--record-steps says how many", "--record-operators"]),
        ("run distilbert --record-operators --record-steps 0", 2, ["--record-steps must be at least 1", "got 0"]),
        ("run gemm --record-operators", 2, ["case gemm is of kind base, which has no steps"]),
        ("run distilbert --from latest", 2, ["there are no runs in runs"]),
        ("run distilbert --from-rank 1", 2, ["--from-rank chooses a rank", "--from names"]),
        ("run distilbert --detach", 2, ["cluster local has no queue"]),
        ("run distilbert --detach --cluster slurm --set training.foo=1", 2, ["training.foo"]),
        ("run distilbert --detach --cluster slurm --container image", 2, ["--container needs --vendor"]),
        ("run distilbert --detach --cluster slurm --nodes 200000", 2, ["at most 100,000"]),
        ("runs attach 5", 2, ["no detached run '5'"]),
        ("runs cancel 5", 2, ["no detached run '5'"]),
        ("run distilbert --repeat 0", 2, ["--repeat: 0 is not in the range"]),
        ("run distilbert --interleave-with training.seed=1", 2, ["--interleave-with needs --repeat N"]),
        ("run distilbert --repeat 2 --interleave-with training.seed", 2, ["takes key=value, for example"]),
        ("run distilbert --repeat 2 --interleave-with training.sed=1", 2, ["did you mean training.seed"]),
        ("run distilbert --repeat 2 --interleave-with training.seed=0", 2, ["changes no value"]),
        ("run distilbert --repeat 2 --interleave-with precision=fp8", 2, ["unknown precision 'fp8'"]),
        ("run distilbert --repeat 2 --interleave-with training.seed=1 --dry-run", 2, ["--dry-run prints one plan"]),
        ("run distilbert --repeat 2 --detach --cluster slurm --interleave-with training.sed=1", 2, ["training.seed"]),
        (
            "run distilbert --hosts n[1-2] --cluster slurm",
            2,
            ["option of cluster ssh; leave out --cluster slurm"],
        ),
        ("plan distilbert --hosts=", 2, ["--hosts names no host"]),
        ("nodes check --hosts n[1-", 2, ["option hosts of cluster ssh: 'n[1-' is not a list of hosts"]),
        ("nodes check --hosts n[1-100001]", 2, ["names more than 100,000 hosts"]),
        ("nodes check --nodes 0", 2, ["--nodes must be at least 1 and at most 100,000; got 0"]),
        ("nodes check --nodes 100001", 2, ["--nodes must be at least 1 and at most 100,000; got 100001"]),
        ("data check distilbrt .", 2, ["unknown case 'distilbrt'; did you mean distilbert"]),
        ("data check distilbert nowhere", 2, ["nowhere is not a folder"]),
        ("data check distilbert . --profile standart", 2, ["did you mean standard"]),
        ("data check distilbert . --set data.sourc=sst2", 2, ["did you mean data.source"]),
        ("data check distilbert", 2, ["DIR"]),
        ("pages lint", 2, ["FILE.md"]),
        ("pages lint a.md --case nope", 2, ["unknown case"]),
        ("import", 2, ["PAGE.md"]),
    ],
)
def test_wrong_commands(
    command: str, code: int, words: list[str], capfd: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    assert run_cli(command.split()) == code
    printed = capfd.readouterr()
    assert printed.out == ""
    for word in words:
        assert word in printed.err
    assert printed.err.startswith("flagperf: ") and printed.err.count("\n") == 1
    assert list(empty_folder.iterdir()) == []


LONG = "a" * 5_000


@pytest.mark.parametrize(
    "command",
    [
        f"vendors new {LONG}",
        f"vendors new {LONG[:250]}",
        f"vendors new acme --folder {LONG}",
        f"vendors new acme --folder {LONG}/package",
        f"vendors check cpu --tests {LONG}",
    ],
)
def test_names_beyond_the_systems_limit(command: str, capfd: pytest.CaptureFixture[str], empty_folder: Path) -> None:
    assert run_cli(command.split()) == 2
    said = capfd.readouterr().err
    assert "cannot be written: File name too long" in said or "is not a folder" in said
    assert said.startswith("flagperf: ") and said.count("\n") == 1 and len(said) < 600
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[cases.distilbert.training]\nbatch_sise = 4\n", ["batch_sise", "file flagperf.toml"]),
        ("[cases.distilbrt.training]\nbatch_size = 4\n", ["distilbrt", "[cases.distilbrt]"]),
        ("[case.distilbert]\n", ["flagperf.toml: unknown table 'case'; did you mean cases", "[cases.NAME]"]),
        ("[clusters.local]\nhosts = 'a'\n", ["unknown option of cluster local 'hosts'; there are none (it has none)"]),
        ("[environment]\nnetwrk = 'x'\n", ["netwrk", "network"]),
        ("not toml at all", ["flagperf.toml is not valid TOML"]),
    ],
)
def test_wrong_user_files(
    content: str, words: list[str], capfd: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    (empty_folder / "flagperf.toml").write_text(content)
    assert run_cli(["run", "distilbert"]) == 2
    printed = capfd.readouterr()
    for word in words:
        assert word in printed.err
    assert [entry.name for entry in empty_folder.iterdir()] == ["flagperf.toml"]


def test_an_ambiguous_run_is_asked_about(capfd: pytest.CaptureFixture[str], empty_folder: Path) -> None:
    for name in ("20260101T000000Z-a", "20260102T000000Z-a"):
        (empty_folder / "runs" / name).mkdir(parents=True)
        (empty_folder / "runs" / name / "run.json").write_text("{}")
    assert run_cli(["runs", "path", "2026"]) == 2
    assert (
        "'2026' is ambiguous: 2 runs match in runs (20260101T000000Z-a, 20260102T000000Z-a)" in capfd.readouterr().err
    )
    assert run_cli(["runs", "path", "20260101"]) == 0
    assert capfd.readouterr().out.strip() == "runs/20260101T000000Z-a"
    assert run_cli(["runs", "show", "20260101"]) == 2
    assert "is not a valid run record" in capfd.readouterr().err


def test_a_bug_of_ours_shows_its_traceback(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flagperf.cli.cases.load_plugins", lambda: 1 / 0)
    assert run_cli(["cases", "list"]) == 1
    printed = capfd.readouterr()
    assert "ZeroDivisionError" in printed.err
    assert "a bug in flagperf" in printed.err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("case --set a=1 b=2 --devices 2", "case --set a=1 --set b=2 --devices 2"),
        ("--set a=1 case", "--set a=1 case"),
        ("--set a=1 --set b=2 c=3", "--set a=1 --set b=2 --set c=3"),
        ("--config=x=y a=1", "--config=x=y a=1"),
        ("case a=1", "case a=1"),
    ],
)
def test_set_takes_several_pairs(given: str, meant: str) -> None:
    assert expand_set(given.split()) == meant.split()

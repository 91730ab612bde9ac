"""A bundle that was changed is named as such, also where its MANIFEST was made again."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from recorded_bundles import recorded_bundle

from flagperf.api import LaunchCommand, OperatorCall, Reading, RecordedRanks, RecordedTensor, Recording, Setting
from flagperf.bundle.bundle import (
    create_bundle,
    environment_fingerprint,
    planned_fields,
    read_bundle,
    read_record,
    write_run,
)
from flagperf.bundle.operator_file import summary
from flagperf.bundle.paths import OPERATORS_FILE
from flagperf.bundle.run_record import Ending, gated
from flagperf.bundle.verify import verify_bundle
from flagperf.cli import run_cli
from flagperf.cli.options import warn_unless_verified
from flagperf.event_files import EventWriter
from flagperf.events import (
    EVENT_SCHEMA,
    Clock,
    Event,
    ProbeEnded,
    ProbeStarted,
    RunEnded,
    RunStarted,
    Sampled,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WorkerEnded,
    WorkersEnded,
    WorkersLaunched,
    WorkerStarted,
)
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics, metric_versions
from flagperf.spec.job import fingerprint
from flagperf.spec.manifest import Target
from flagperf.spec.protocol import WorkOrder, work_orders
from flagperf.spec.values import Resolved
from run_builders import make_run
from sealing import seal_again

SECOND = 1_000_000_000
COMMAND = LaunchCommand(("python", "-m", "torch.distributed.run"), (Setting("OMP_NUM_THREADS", "2", "2 cores"),))
CLOCK = Clock("host", "boot", 1, "2026-01-01T00:00:00+00:00")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """One rank, four steps, all written by the processes that write them in a run."""
    return make_bundle(tmp_path)


def make_bundle(folder: Path, num_nodes: int = 1) -> Path:
    """A rank on each node."""
    run = make_run("20260101T000000Z-demo-cpu-1x1-abc123")
    values = {"precision": "fp32", "training": {"batch_size": 4}}
    nodes = tuple(msgspec.structs.replace(run.job.nodes[0], index=index) for index in range(num_nodes))
    job = msgspec.structs.replace(run.job, config=Resolved(values, {}, {}), nodes=nodes)
    run = msgspec.structs.replace(run, job=job, metric_versions=metric_versions(run.manifest))
    path = create_bundle(folder, run, ())
    write(
        path / "events" / "parent.jsonl",
        RunStarted(
            SECOND,
            schema=EVENT_SCHEMA,
            clock=CLOCK,
            planned=planned_fields(path),
            environment=environment_fingerprint(path),
        ),
        *(
            WorkersLaunched(2 * SECOND, node_index=index, node_t_ns=2 * SECOND, command=COMMAND)
            for index in range(num_nodes)
        ),
        *(
            WorkersEnded(19 * SECOND, node_index=index, node_t_ns=19 * SECOND, returncode=0)
            for index in range(num_nodes)
        ),
        RunEnded(20 * SECOND, "succeeded"),
    )
    for order in work_orders(job):
        _write_node(path, order, fingerprint(msgspec.to_builtins(order.job)))
    metrics = compute_metrics(Observed(run.job, run.manifest, read_record(path)))
    commands = (COMMAND,) * num_nodes
    write_run(path, msgspec.structs.replace(run, metrics=metrics, ending=Ending("succeeded"), commands=commands))
    seal_again(path)
    return path


def _write_node(path: Path, order: WorkOrder, given_job: str) -> None:
    (rank,) = order.ranks
    write(
        path / "events" / f"rank-{rank:05d}.jsonl",
        WorkerStarted(
            3 * SECOND,
            schema=EVENT_SCHEMA,
            clock=CLOCK,
            rank=rank,
            local_rank=0,
            node_index=order.node_index,
            world_size=order.world_size,
            device_id="cpu:0",
            mapping="slot",
            timing="synchronize",
            precision="fp32",
            batch_size=4,
            job=given_job,
        ),
        SpanBegan(4 * SECOND, "training", planned_steps=4),
        *(step(number) for number in range(1, 5)),
        SpanEnded(9 * SECOND, "training", 4 * SECOND, 4),
        WorkerEnded(10 * SECOND, "succeeded"),
    )
    write(
        path / "samples" / f"node-{order.node_index:03d}.jsonl",
        ProbeStarted(
            SECOND,
            schema=EVENT_SCHEMA,
            clock=CLOCK,
            node_index=order.node_index,
            vendor="cpu",
            probe="rss",
            interval_seconds=1.0,
        ),
        Sampled(2 * SECOND, (Reading("cpu:0", used_bytes=0, total_bytes=1 << 34),), baseline=True),
        Sampled(5 * SECOND, (Reading("cpu:0", used_bytes=1 << 30, total_bytes=1 << 34),)),
        ProbeEnded(19 * SECOND, cpu_seconds=0.1, wall_seconds=18.0),
    )


def write(path: Path, *events: Event) -> None:
    with EventWriter(path) as writer:
        writer.write(*events)


def step(number: int) -> StepFinished:
    began = (3 + number) * SECOND
    return StepFinished(
        began + SECOND, step=number, began_ns=began, compute_ns=SECOND // 2, wait_ns=0, work={"samples": 4}
    )


def change(path: Path, edit: Callable[[Any], object]) -> None:
    """Edit run.json as somebody with an editor and sha256sum would."""
    content = json.loads((path / "run.json").read_text())
    edit(content)
    (path / "run.json").write_text(json.dumps(content))
    seal_again(path)


def metric(run: Any, name: str) -> Any:
    return next(metric for metric in run["metrics"] if metric["name"] == name)


def test_an_untouched_bundle_holds(bundle: Path) -> None:
    result = verify_bundle(bundle)
    assert result.problems == ()
    assert result.num_metrics > 20
    assert result.num_files == 6


@pytest.mark.parametrize(
    "edit",
    [
        lambda run: run["commands"][0]["argv"].append("--nproc-per-node=8"),
        lambda run: run["commands"][0]["settings"][0].update(value="64"),
        lambda run: run.pop("commands"),
    ],
)
def test_commands_are_those_that_the_agents_ran(bundle: Path, edit: Callable[[Any], object]) -> None:
    change(bundle, edit)
    assert verify_bundle(bundle).problems == (
        "run.json: commands differ from the commands that the agents ran (events/parent.jsonl)",
    )


def test_another_layout_of_the_same_json_holds(bundle: Path) -> None:
    change(bundle, lambda run: run.update(job=dict(reversed(run["job"].items()))))
    assert verify_bundle(bundle).problems == ()


def test_derived_floats_may_differ_in_their_last_bits(bundle: Path) -> None:
    """Another C library or Python may round them otherwise."""

    def edit(run: Any) -> None:
        for each in run["metrics"]:
            if isinstance(each.get("value"), float) and each["value"]:
                each["value"] = math.nextafter(each["value"], math.inf)

    change(bundle, edit)
    assert verify_bundle(bundle).problems == ()


@pytest.mark.parametrize(
    ("name", "factor_or_step"), [("p_core", 1e-9), ("p_core", 1e-11), ("mem_used", 1), ("samples_kept", 1)]
)
def test_a_small_change_of_a_figure_is_found_and_counts_are_exact(
    bundle: Path, name: str, factor_or_step: float
) -> None:
    def edit(run: Any) -> None:
        found = metric(run, name)
        is_count = isinstance(factor_or_step, int)
        assert isinstance(found["value"], int) is is_count
        found["value"] = found["value"] + factor_or_step if is_count else found["value"] * (1 + factor_or_step)

    change(bundle, edit)
    assert [problem for problem in verify_bundle(bundle).problems if problem.startswith(f"{name}: stored")]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda run: metric(run, "p_core").update(value=9.5), "p_core: stored 9.5, recomputed 8.0"),
        (lambda run: metric(run, "p_core").update(unit="rows/s"), 'p_core: stored unit "rows/s", recomputed'),
        (lambda run: metric(run, "p_core").update(definition="p_whole"), 'p_core: stored definition "p_whole", rec'),
        (lambda run: metric(run, "p_core").update(scope="device"), 'p_core: stored scope "device", recomputed'),
        (lambda run: metric(run, "p_core").update(interval={"low": 7, "high": 9, "method": "x"}), "stored interval"),
        (lambda run: metric(run, "mfu").update(reason="unsupported"), "mfu: stored n/a (unsupported), recomputed n/a"),
        (lambda run: metric(run, "mfu").update(message={"code": "x"}), 'mfu: stored message {"code":"x"'),
        (lambda run: metric(run, "mem_used").update(marks=["torn_record"]), 'mem_used: stored marks ["torn_record"]'),
        (lambda run: run["metrics"].pop(), "target: run.json has no such metric, but the run began with version 1"),
        (lambda run: run["metrics"].insert(0, {**metric(run, "p_core"), "value": 99}), "1 metrics are duplicates"),
        (
            lambda run: run["metrics"].append({**metric(run, "p_core"), "name": "p_more"}),
            "p_more: this flagperf has no version 1 of it",
        ),
        (lambda run: run.update(ending={"status": "timed_out"}), "ending: stored timed_out, recomputed succe"),
        (lambda run: run["ending"].update(reason="well done"), "ending: stored succeeded (well done), recomputed"),
    ],
)
def test_each_stored_result_is_compared_with_the_raw_files(
    bundle: Path, edit: Callable[[Any], object], problem: str
) -> None:
    change(bundle, edit)
    assert [found for found in verify_bundle(bundle).problems if problem in found]


@pytest.mark.parametrize(
    ("edit", "problems"),
    [
        (
            lambda run: run["job"].update(precision={**run["job"]["precision"], "name": "bf16"}),
            ["run.json: job.precision has changed", "rank 0: run.json has precision bf16, but the worker used fp32"],
        ),
        (
            lambda run: run["job"]["config"]["values"]["training"].update(batch_size=64),
            ["run.json: job.config has changed", "rank 0: run.json has batch size 64, but the worker used 4"],
        ),
        (
            lambda run: run["job"]["nodes"][0]["devices"][0].update(id="card-7"),
            [
                "run.json: job.nodes has changed",
                "rank 0: run.json has devices card-7, but the worker used cpu:0",
                "node 0: run.json has no device cpu:0",
            ],
        ),
        (
            lambda run: run["job"]["nodes"][0]["devices"].append(run["job"]["nodes"][0]["devices"][0]),
            ["rank 0: run.json has world size 2, but the worker used 1"],
        ),
        (
            lambda run: run["job"]["nodes"][0]["devices"][0].update(model="A much faster card"),
            ["run.json: job.nodes has changed", "rank 0: the job that it received differs"],
        ),
        (
            lambda run: run["job"]["nodes"][0].update(host="other"),
            ["rank 0: run.json has host other, but the worker ran"],
        ),
        (
            lambda run: run["job"].update(vendor="acme"),
            ["run.json: job.vendor has changed", "its probe read cards of cpu"],
        ),
        (lambda run: run["manifest"].update(model="A larger model"), ["run.json: manifest has changed"]),
        (lambda run: run.update(created="2027-01-01T00:00:00+00:00"), ["run.json: created has changed"]),
        (lambda run: run.update(simulated=True), ["run.json: simulated has changed"]),
    ],
)
def test_a_relabelled_run_is_named_by_what_its_processes_wrote(
    bundle: Path, edit: Callable[[Any], object], problems: list[str]
) -> None:
    change(bundle, edit)
    found = verify_bundle(bundle).problems
    for problem in problems:
        assert [each for each in found if problem in each], found


def test_workers_received_their_nodes_part_of_the_job(tmp_path: Path) -> None:
    path = make_bundle(tmp_path, 2)
    assert verify_bundle(path).problems == ()
    change(path, lambda run: run["job"]["nodes"][1]["devices"][0].update(model="A much faster card"))
    found = verify_bundle(path).problems
    assert "run.json: job.nodes has changed since the run began" in " ".join(found)
    differing = [problem for problem in found if "the job that it received differs from the one in run.json" in problem]
    assert differing == ["rank 1: the job that it received differs from the one in run.json"]


def test_a_changed_environment_is_named(bundle: Path) -> None:
    (bundle / "environment.json").write_text("[]\n")
    seal_again(bundle)
    assert verify_bundle(bundle).problems == ()  # the same value
    (bundle / "environment.json").unlink()
    seal_again(bundle)
    (problem,) = verify_bundle(bundle).problems
    assert "environment.json" in problem


def test_a_run_that_says_it_succeeded_while_a_rank_did_not_is_named(bundle: Path) -> None:
    events = bundle / "events" / "rank-00000.jsonl"
    events.write_text(events.read_text().replace('"status":"succeeded"', '"status":"failed"'))
    seal_again(bundle)
    assert [found for found in verify_bundle(bundle).problems if "stored succeeded, but rank 0 did not" in found]


def test_a_run_without_its_raw_ending_is_named(bundle: Path) -> None:
    (bundle / "events" / "parent.jsonl").unlink()
    problems = verify_bundle(bundle).problems
    assert "events/parent.jsonl is missing" in problems
    assert "events/parent.jsonl does not record what was planned" in problems
    assert [found for found in problems if "has 0 endings" in found]


def test_a_run_whose_ending_was_deleted_is_not_an_unfinished_one(bundle: Path) -> None:
    change(bundle, lambda run: run.pop("ending"))
    assert verify_bundle(bundle).problems == ("run.json has no ending: the run was never finished",)


# Values that no run has


def test_what_cannot_be_computed_is_a_problem_of_the_bundle(bundle: Path) -> None:
    change(bundle, lambda run: run["job"]["config"].update(values={"training": []}))
    problems = verify_bundle(bundle).problems
    assert any("cannot be recomputed from the raw files: AttributeError" in problem for problem in problems)


@pytest.mark.parametrize("command", [["report"], ["report", "--format", "md"], ["runs", "show"]])
def test_what_cannot_be_shown_is_one_message(
    tmp_path: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    original = recorded_bundle("distilbert")
    bundle = shutil.copytree(original, tmp_path / original.name)
    change(bundle, lambda run: metric(run, "acc")["inputs"].update(evaluated=None))
    assert run_cli([*command, str(bundle)]) == 2
    printed = capfd.readouterr().err
    assert printed.startswith(
        f"flagperf: cannot show what is damaged: {bundle.name} is not verified: acc: stored inputs"
    )
    assert printed.count("\n") == 1


def test_an_intact_bundle_is_not_to_blame(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flagperf.report.screens.run_report", lambda *_, **__: 1 / 0)
    assert run_cli(["runs", "show", str(bundle)]) == 1


def test_a_command_that_may_not_have_more_memory_says_so(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def read_record_in_vain(_path: Path) -> None:
        raise MemoryError

    monkeypatch.setattr("flagperf.bundle.verify.read_record", read_record_in_vain)
    assert run_cli(["runs", "verify", str(bundle)]) == 4
    assert capfd.readouterr().err.startswith("flagperf: out of memory: this process may not have more")


# Files that nobody should read


@pytest.mark.parametrize("name", ["run.json", "events/rank-00001.jsonl", "logs/more.log", "MANIFEST"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_regular_file_is_refused_and_never_read(bundle: Path, name: str, kind: str) -> None:
    (bundle / name).unlink(missing_ok=True)
    if kind == "link":
        (bundle / name).symlink_to("/dev/zero")
    else:
        os.mkfifo(bundle / name)
    assert verify_bundle(bundle).problems == (f"{name} is a {kind}, not a regular file: nothing here was read",)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_report_of_what_is_no_regular_file_is_one_message(
    bundle: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (bundle / "run.json").unlink()
    if kind == "link":
        (bundle / "run.json").symlink_to("/dev/zero")
    else:
        os.mkfifo(bundle / "run.json")
    for command in (["report", str(bundle)], ["runs", "show", str(bundle)]):
        assert run_cli(command) == 2
        assert f"run.json is a {kind}, not a regular file; it is not read" in capfd.readouterr().err
    assert run_cli(["runs", "list", "--runs-dir", str(bundle.parent)]) == 0
    assert "unreadable" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["run.json", "events/rank-00000.jsonl"])
def test_a_file_that_is_too_large_is_one_message(bundle: Path, name: str) -> None:
    with (bundle / name).open("r+b") as file:
        file.truncate(3 << 30)  # sparse: takes no room
    (problem,) = verify_bundle(bundle).problems
    assert problem.startswith(f"{name} has 3072 MiB, more than")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1, "metric_versions": {}}'])
def test_a_malformed_run_is_one_message(bundle: Path, content: bytes) -> None:
    (bundle / "run.json").write_bytes(content)
    seal_again(bundle)
    (problem,) = verify_bundle(bundle).problems
    assert "run.json is not a valid run record" in problem


def test_a_manifest_that_is_none_is_named(bundle: Path) -> None:
    (bundle / "MANIFEST").write_text("what is this\n")
    assert verify_bundle(bundle).problems == ("MANIFEST is not in the format of sha256sum",)


# Reports


def test_a_report_of_a_bundle_that_holds_says_nothing_else(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["report", str(bundle)]) == 0
    assert capfd.readouterr().err == ""


def test_a_report_of_a_bundle_that_does_not_hold_is_printed_with_a_warning(
    bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change(bundle, lambda run: metric(run, "p_core").update(value=9.5))
    assert run_cli(["report", str(bundle)]) == 0
    printed = capfd.readouterr()
    assert bundle.name in printed.out
    assert f"warning: {bundle.name} is not verified: p_core: stored 9.5, recomputed 8.0" in printed.err
    assert f"runs verify {bundle}`" in printed.err
    assert run_cli(["report", str(bundle), "-q"]) == 0
    assert capfd.readouterr().err == ""


def test_a_report_of_a_large_bundle_compares_digests_and_says_so(
    bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change(bundle, lambda run: metric(run, "p_core").update(value=9.5))
    found = verify_bundle(bundle, recomputed_bytes=100)
    assert (found.problems, found.recomputed) == ((), False)
    with click.Context(click.Command("report")):
        warn_unless_verified(bundle, 100)
        assert capfd.readouterr().err.startswith(f"{bundle.name} is not recomputed: `")
        warn_unless_verified(bundle, 1 << 20)
        assert "p_core: stored 9.5, recomputed 8.0" in capfd.readouterr().err
        with (bundle / "samples" / "node-000.jsonl").open("a") as samples:
            samples.write("\n")
        warn_unless_verified(bundle, 100)
        assert "node-000.jsonl has changed since the run" in capfd.readouterr().err


def test_a_run_of_another_version_may_explain_a_missing_value_differently(bundle: Path) -> None:
    def reword(run: Any) -> None:
        metric(run, "mfu").update(detail="the case has no formula", message={"code": "from.another_version"})

    change(bundle, reword)
    assert any("mfu: stored message" in problem for problem in verify_bundle(bundle).problems)
    change(bundle, lambda run: run.update(flagperf_version="0.0.9"))
    assert [problem for problem in verify_bundle(bundle).problems if problem.startswith("mfu")] == []


def test_a_target_that_was_not_measured_verifies(bundle: Path) -> None:
    """The reason inside the reason comes back from JSON as a plain object."""
    run = read_bundle(bundle).run
    manifest = msgspec.structs.replace(run.manifest, target=Target("p_core", "no.such_key", gates=True))
    metrics = compute_metrics(Observed(run.job, manifest, read_record(bundle)))
    gated_run = msgspec.structs.replace(run, manifest=manifest, metrics=metrics)
    ending = gated(Ending("succeeded"), gated_run)
    assert ending.reason == "p_core was not measured: the configuration has no number at no.such_key"
    write_run(bundle, msgspec.structs.replace(gated_run, ending=ending))
    seal_again(bundle)
    assert [problem for problem in verify_bundle(bundle).problems if problem.startswith("ending")] == []


# --- recorded operators ---------------------------------------------------------------------------------------------


def with_operators(bundle: Path) -> Path:
    """The bundle as if it had recorded two calls of one operator."""
    run = read_bundle(bundle).run
    part = RecordedRanks([0], 1, [RecordedTensor((3,), (1,), "float32")], [OperatorCall("aten::relu", 2)])
    recording = Recording(1, run.id, "demo", 1, "tiny", "fp32", "cpu", "CPU", "2.13.0", [part])
    (bundle / OPERATORS_FILE).write_bytes(msgspec.json.encode(recording))
    write_run(bundle, msgspec.structs.replace(run, recorded=summary(recording, None)))
    seal_again(bundle)
    return bundle / OPERATORS_FILE


def test_recorded_operators_are_those_that_the_run_says(bundle: Path) -> None:
    with_operators(bundle)
    assert verify_bundle(bundle).problems == ()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.unlink(), "operators.json is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b":2}", b":3}")), "does not have what run.json says"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"20260101T", b"20270101T")), "is of run 2027"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":9')), "schema 9"),
    ],
)
def test_changed_operators_are_named_although_the_manifest_was_made_again(
    bundle: Path, change: Callable[[Path], object], problem: str
) -> None:
    change(with_operators(bundle))
    seal_again(bundle)
    assert any(problem in said for said in verify_bundle(bundle).problems)


def test_operators_that_the_run_knows_nothing_of_are_named(bundle: Path) -> None:
    run = read_bundle(bundle).run
    with_operators(bundle)
    write_run(bundle, run)
    seal_again(bundle)
    assert any("run.json says that nothing was recorded" in said for said in verify_bundle(bundle).problems)

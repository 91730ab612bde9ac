"""Runs on a real MLflow server, which `make test` installs into an environment of its own."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded_bundles import FOLDER, IDS

from flagperf.cli import run_cli
from flagperf_publish.export.mlflow_export import COMPLETE_TAG, MANIFEST_TAG, RUN_TAG
from flagperf_publish.export.run_lines import curve_lines, read_exported

ROOT = Path(__file__).parents[2]
RECORDED = FOLDER
RUN = IDS["distilbert"]
FAILED = IDS["failed"]
START_SECONDS = 300
"""On a machine that is busy with other things. Alone it takes 5 s."""


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("mlflow")
    program = ROOT / ".venv" / "mlflow" / "bin" / "mlflow"
    if not program.exists():
        message = f"no MLflow server at {program}; `make .venv/.mlflow` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stores = [
        "--backend-store-uri",
        f"sqlite:///{folder}/runs.sqlite",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    environ = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("wb") as log, subprocess.Popen(
        [program, "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port), *stores],
        cwd=folder, env=environ, stdout=log, stderr=log,
    ) as process:  # fmt: skip
        try:
            _wait(f"http://127.0.0.1:{port}/health", process, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(600)


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"the server is not up after {START_SECONDS} s: {log.read_text()}")


def runs_on(mlflow_server: str, experiment: str) -> list[dict[str, Any]]:
    found = ask(mlflow_server, f"experiments/get-by-name?experiment_name={experiment}")
    return list(
        ask(mlflow_server, "runs/search", experiment_ids=[found["experiment"]["experiment_id"]]).get("runs", [])
    )


def ask(mlflow_server: str, question: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{mlflow_server}/api/2.0/mlflow/{question}", headers={"Content-Type": "application/json"}
    )
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(request, data, timeout=600) as answer:
        return dict(json.loads(answer.read()))


def export(mlflow_server: str, experiment: str, *arguments: str) -> int:
    return run_cli(["export", "mlflow", "--tracking-uri", mlflow_server, "--experiment", experiment, *arguments])


def test_a_run_arrives_whole_and_a_second_export_changes_nothing(
    mlflow_server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    named = [RUN, FAILED, "--runs-dir", str(RECORDED)]
    assert export(mlflow_server, "once", *named, "--json") == 0
    first = json.loads(capfd.readouterr().out)
    assert [each["state"] for each in first] == ["exported", "exported"]
    before = runs_on(mlflow_server, "once")
    assert export(mlflow_server, "once", *named, "--json") == 0
    second = json.loads(capfd.readouterr().out)
    assert [each["state"] for each in second] == ["already there", "already there"]
    assert [each["mlflow_run"] for each in second] == [each["mlflow_run"] for each in first]
    assert runs_on(mlflow_server, "once") == before
    _check_run(mlflow_server, next(run for run in before if run["info"]["run_name"] == RUN), tmp_path)
    (failed,) = [run for run in before if run["info"]["run_name"] == FAILED]
    assert failed["info"]["status"] == "FAILED"


def _check_run(mlflow_server: str, found: dict[str, Any], folder: Path) -> None:
    each = read_exported(RECORDED / RUN)
    tags = {tag["key"]: tag["value"] for tag in found["data"]["tags"]}
    assert (tags[RUN_TAG], tags[MANIFEST_TAG], tags[COMPLETE_TAG]) == (RUN, each.manifest_sha256, "true")
    assert (tags["flagperf.unit.p_core"], tags["flagperf.reason.mfu"]) == ("samples/s", "unknown_peak")
    params = {param["key"]: param["value"] for param in found["data"]["params"]}
    assert (params["precision"], params["values.training.batch_size"]) == ("fp32", "32")
    metrics = {metric["key"]: metric["value"] for metric in found["data"]["metrics"]}
    for metric in each.run.metrics:
        assert metrics.get(metric.name) == metric.value
    began = datetime.datetime.fromisoformat(each.run.created)
    assert (found["info"]["status"], found["info"]["start_time"]) == ("FINISHED", int(began.timestamp()) * 1000)
    run_id = found["info"]["run_id"]
    history = ask(mlflow_server, f"metrics/get-history?run_id={run_id}&metric_key=curve/loss&max_results=1000")[
        "metrics"
    ]
    lines = list(curve_lines(each))
    assert sorted((point["step"], point["value"]) for point in history) == [
        (line["step"], line["loss"]) for line in lines
    ]
    client = __import__("mlflow").MlflowClient(tracking_uri=mlflow_server)
    client.download_artifacts(run_id, "bundle", str(folder))
    done = subprocess.run(["diff", "-r", folder / "bundle", RECORDED / RUN], capture_output=True, check=False)
    assert done.stdout == b""


def test_what_an_interrupted_export_left_is_written_anew(mlflow_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert export(mlflow_server, "twice", RUN, "--runs-dir", str(RECORDED)) == 0
    (half,) = runs_on(mlflow_server, "twice")
    ask(mlflow_server, "runs/delete-tag", run_id=half["info"]["run_id"], key=COMPLETE_TAG)
    assert export(mlflow_server, "twice", RUN, "--runs-dir", str(RECORDED)) == 0
    (whole,) = runs_on(mlflow_server, "twice")
    assert whole["info"]["run_id"] != half["info"]["run_id"]
    assert len(whole["data"]["metrics"]) == len(half["data"]["metrics"])


def test_a_run_of_the_same_id_with_other_content_is_another_one(
    mlflow_server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(RECORDED / FAILED, tmp_path / FAILED))
    with (other / "MANIFEST").open("a") as file:
        file.write(f"{'0' * 64}  logs/more.log\n")
    assert export(mlflow_server, "other", str(RECORDED / FAILED)) == 0
    assert export(mlflow_server, "other", str(other)) == 0
    assert len(runs_on(mlflow_server, "other")) == 2


# --- without a server -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("address", "code"), [("http://127.0.0.1:9", 3), ("foo://x", 2)])
def test_a_server_that_is_away_or_no_server_is_one_message(
    address: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlflow")
    assert export(address, "x", RUN, "--runs-dir", str(RECORDED)) == code
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"flagperf: cannot export to the MLflow server {address}: ")


def test_without_the_client_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert export("http://127.0.0.1:9", "x", RUN, "--runs-dir", str(RECORDED)) == 2
    assert "flagperf[mlflow]" in capfd.readouterr().err


def test_an_unfinished_run_is_not_exported(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    unfinished = IDS["parent_killed"]
    shutil.copytree(RECORDED / unfinished, tmp_path / unfinished)
    assert export("http://127.0.0.1:9", "x", "--runs-dir", str(tmp_path)) == 2
    assert "there is no finished run" in capfd.readouterr().err


def test_one_unfinished_run_among_those_that_are_named_stops_the_export_before_it_begins(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = IDS["parent_killed"]
    monkeypatch.setitem(sys.modules, "mlflow", None)  # whoever asks for a server gets another message
    assert export("http://127.0.0.1:9", "x", RUN, FAILED, unfinished, "--runs-dir", str(RECORDED)) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"flagperf: not finished: {unfinished}; leave that out until it has ended; nothing was sent\n"
    )


@pytest.mark.parametrize("uri", ["", " ", "http://", "https:///path", "http://[::1", "http://host:99999999"])
def test_what_is_no_address_is_bad_input(uri: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert export(uri, "x", RUN, "--runs-dir", str(RECORDED)) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"flagperf: --tracking-uri {uri!r} is not an address of an MLflow server; give one as ")


def test_an_experiment_has_a_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert export("http://127.0.0.1:9", "", RUN, "--runs-dir", str(RECORDED)) == 2
    assert "--experiment is empty" in capfd.readouterr().err

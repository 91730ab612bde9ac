"""Plans for cards that are not here, and memory before launch, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagperf.cli import run_cli
from flagperf.plan.case_checks import MemoryEstimate

pytestmark = pytest.mark.usefixtures("empty_folder")


def planned(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    assert run_cli(["plan", *command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


PUBLISHED = [
    ("A100-SXM4-40GB", "1x1", {"batch_size": 96, "learning_rate": 1.5e-4}),
    ("A100-SXM4-40GB", "1x8", {"batch_size": 96}),
    ("A100-SXM4-40GB", "2x8", {"batch_size": 96}),
    ("C500", "1x1", {"batch_size": 96, "learning_rate": 1e-5}),
    ("C500", "1x8", {"batch_size": 96}),
    ("C500", "2x8", {"batch_size": 96}),
    ("R300", "1x1", {"batch_size": 32, "accumulate": 8}),
    ("R300", "1x8", {"batch_size": 32}),
    ("R300", "2x8", {"batch_size": 16}),
]


@pytest.mark.parametrize(("model", "shape", "tuned"), PUBLISHED)
def test_the_tuning_of_every_published_distilbert_row_shows(
    capsys: pytest.CaptureFixture[str], model: str, shape: str, tuned: dict[str, Any]
) -> None:
    nodes, devices = shape.split("x")
    found = planned(capsys, "distilbert", "--device-model", model.lower(), "--nodes", nodes, "--devices", devices)
    config = found["config"]
    layers = {key: layer for key, layer in config["layers"].items() if layer.startswith(f"tuning {found['vendor']} ")}
    assert {f"training.{key}" for key in tuned} <= set(layers)
    assert {key: config["values"]["training"][key] for key in tuned} == tuned
    assert all(model in layer and shape in layer for layer in layers.values())


def test_without_a_machine_all_is_shown_that_the_adapter_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["plan", "glm", "--device-model", "k100", "--nodes", "2", "--devices", "4"]) == 0
    text = capsys.readouterr().out
    for words in (
        "device model  K100 (may be absent here)",
        "shape         2x4, 8 workers",
        "profile       standard",
        "memory_bandwidth  8.96e+11 bytes/s  low ",
        "--nnodes=2 --node-rank=0 --nproc-per-node=4 '--master-addr=<address of node 0>' '--master-port=?'",
        ". /opt/dtk/env.sh  # run once before the workers",
        "OMP_NUM_THREADS=?  # depends on the node",
        "HIP_VISIBLE_DEVICES=0,1,2,3  # the cards of this run",
        "unset ROCR_VISIBLE_DEVICES  # it must never reach the workers",
        "driver  asked of the nodes",
        "data    no file was read",
    ):
        assert words in text, text


def test_cards_that_go_by_uuid_have_none_yet(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "distilbert", "--device-model", "A100-SXM4-40GB", "--devices", "2")
    settings = {entry["name"]: entry["value"] for entry in found["command"]["settings"]}
    assert settings["CUDA_VISIBLE_DEVICES"] == "<UUID of card 0>,<UUID of card 1>"
    assert found["unknown"].keys() == {"cards", "driver", "cpus", "data"}
    assert found["memory"] is None


def test_the_users_values_go_before_the_tuning(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flagperf.toml").write_text("[cases.distilbert.training]\nbatch_size = 8\n")
    found = planned(capsys, "distilbert", "--device-model", "C500", "--set", "training.learning_rate=1e-3")
    assert found["config"]["values"]["training"]["batch_size"] == 8
    assert found["config"]["deviations"]["training.batch_size"] == "file flagperf.toml"
    assert found["config"]["layers"]["training.learning_rate"] == "--set"


def test_a_layout_alone_says_what_a_card_that_is_not_here_needs(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "llama2_70b", "--parallel", "TP8PP4DP1", "--device-model", "C500")
    assert (found["profile"], found["nodes"], found["devices"]) == ("standard", 1, 32)
    memory = found["memory"]
    assert memory["total_bytes"] == 64 * 2**30
    # 80 layers and two tables over 32 cards, norms apart: 2.1 B parameters of 4 bytes, and twice that for AdamW
    assert memory["parts"]["optimizer state"] == pytest.approx(8 * 68_976_648_192 / 32, rel=0.02)
    assert set(memory["parts"]) == {"parameters", "gradients", "optimizer state", "activations"}


def test_a_plan_for_devices_that_are_here_has_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "llama2_70b", "--vendor", "cpu", "--parallel", "TP2PP2DP1")
    assert len(found["job"]["nodes"][0]["devices"]) == 4
    assert 0 < sum(found["memory"]["parts"].values()) < found["memory"]["total_bytes"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_does_not_fit_is_printed_and_has_an_exit_code_of_its_own(
    form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["plan", "llama2_70b", "--parallel", "TP8PP1DP1", "--device-model", "C500", *form]) == 8
    printed = capsys.readouterr()
    assert printed.err.startswith("flagperf: the fullest rank needs ") and "the card has 64.0 GiB; use" in printed.err
    if form:
        assert json.loads(printed.out)["memory"]["total_bytes"] == 64 * 2**30
    else:
        assert "of the card: it does not fit." in printed.out
        assert "the card has     64.0 GiB (nominal, of the published C500-64GB)" in printed.out
        assert "Unknown without the machine" in printed.out


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"]])
def test_devices_that_are_here_may_be_too_small_as_well(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate = MemoryEstimate({"parameters": 2 << 30}, 1 << 30, "what it reports")
    monkeypatch.setattr("flagperf.plan.plan.estimate_memory", lambda *_: estimate)
    assert run_cli([*command, "distilbert", "--vendor", "cpu"]) == 8
    printed = capsys.readouterr()
    assert "Environment of " in printed.out and "needs 2.0 GiB by the estimate, the card has 1.0 GiB" in printed.err


def test_a_card_that_tensors_alone_nearly_fill_is_said_to_be_tight(capsys: pytest.CaptureFixture[str]) -> None:
    layout = ["--parallel", "TP8PP4DP1", "--nodes", "4", "--set", "model.recompute=false"]
    assert run_cli(["plan", "llama2_70b", *layout, "--device-model", "C500"]) == 0
    assert "of the card, which is tight: framework, collective buffers and fragm" in capsys.readouterr().out
    assert run_cli(["plan", "llama2_70b", *layout, "--device-model", "C500", "--json"]) == 0
    assert "of the card, which is tight" in capsys.readouterr().err


def test_an_inference_case_estimates_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "aquila_33b", "--device-model", "A100-SXM4-40GB", "--devices", "8")
    assert found["memory"]["total_bytes"] == 40 * 2**30
    assert found["memory"]["parts"]["parameters"] == pytest.approx(2 * 33_693_554_688 / 8, rel=0.001)


@pytest.mark.parametrize("command", ["plan", "run --dry-run"])
def test_data_that_cannot_be_used_is_said_beside_the_values(capsys: pytest.CaptureFixture[str], command: str) -> None:
    word, *options = command.split()
    assert run_cli([word, "distilbert", "--vendor", "cpu", "--profile", "standard", *options]) == 2
    printed = capsys.readouterr()
    assert "model.vocabulary          30522  case" in printed.out
    assert "data       cannot be used: the reason is below" in printed.out
    assert printed.err.strip().endswith("lists what has to be there)") and printed.err.count("\n") == 1
    Path("data").mkdir()
    data = ["--data-dir", "data", "--json"]
    assert run_cli([word, "distilbert", "--vendor", "cpu", "--profile", "standard", *options, *data]) == 2
    printed = capsys.readouterr()
    problem = json.loads(printed.out)["data_problem"]
    assert problem and problem in printed.err

"""The JSON export: the documented fields, unrounded."""

import json

import msgspec
from report_builders import GIB, cpu_run, metax_runs, metric, no_metric, no_peak, recorded

from flagperf.report.run_json import to_json


def exported(*runs):
    return json.loads(to_json(runs))["runs"]


def test_export_has_the_documented_fields():
    run = exported(recorded())[0]
    documented = """id created status reason unfinished tags note case vendor adapter flagperf_version simulated
        redacted device shape precision overrides metrics rows environment doubts group"""
    assert list(run) == documented.split()
    case = {"name": "distilbert", "version": 1, "kind": "training", "profile": "standard", "published": True}
    assert run["case"] == case
    assert run["shape"] == {"nodes": 1, "devices_per_node": 8, "devices": 8}
    assert run["device"] == {"model": "MetaX C500", "short_name": "C500", "memory_bytes": 64 * GIB}
    assert (run["status"], run["vendor"], run["simulated"]) == ("succeeded", "metax", False)


def test_metrics_are_unrounded_and_complete():
    core = exported(recorded())[0]["metrics"]["p_core"]
    assert core["value"] == 1755.55
    assert core["interval"] == {"low": 1750.1, "high": 1761.0, "method": "95 %, batch means"}
    documented = "value unit scope definition reason detail message version marks interval inputs"
    assert set(core) == set(documented.split())


def test_missing_value_is_null_with_its_reason_and_words_made_from_its_message():
    """Words that stand beside a message are not verified, and so not shown."""
    missing = no_metric("mfu", "unknown_peak", no_peak("metax", "C500", "fp32"))
    (run,) = exported(recorded(figures={"mfu": msgspec.structs.replace(missing, detail="the vendor is to blame")}))
    mfu = run["metrics"]["mfu"]
    assert (mfu["value"], mfu["reason"]) == (None, "unknown_peak")
    assert mfu["detail"] == "no peak is known for vendor metax, model C500, precision row fp32"
    (run,) = exported(recorded(figures={"mfu": metric("mfu", None, reason="unknown_peak", detail="why")}))
    assert run["metrics"]["mfu"]["detail"] == "why"


def test_changed_values_have_their_layer_and_are_not_exported_as_published():
    runs = exported(*metax_runs(), recorded(tuning={"training.batch_size": 8}))
    assert [run["case"]["published"] for run in runs] == [True, False, True, True]
    assert runs[1]["overrides"] == {
        "training.batch_size": {"value": 96, "layer": "tuning metax"},
        "training.learning_rate": {"value": 1.5e-4, "layer": "--set"},
    }


def test_environment_of_every_node():
    first, second = exported(metax_runs()[0])[0]["environment"]
    assert (first["host"], second["host"]) == ("node0", "node1")
    network = {"value": "InfiniBand, 2x200 Gb/s", "how": "stated", "reason": "", "message": None}
    assert first["facts"]["network"] == network
    assert first["versions"] == {"driver": "2.9.8", "maca": "2.27.0"}
    assert first["packages"]["transformers"] == "4.44.0"


def test_simulated_failed_and_unfinished_runs_say_so():
    runs = exported(recorded(simulated=True), metax_runs()[0], recorded(ending=None))
    assert runs[0]["vendor"] == "metax (simulated)"
    assert [run["status"] for run in runs] == ["succeeded", "out_of_memory", None]


def test_export_is_the_same_every_time():
    assert to_json([cpu_run()]) == to_json([cpu_run()])
    assert json.loads(to_json([])) == {"schema": 1, "runs": []}

"""The JSON export: the documented fields, unrounded."""

import json

import msgspec
from report_builders import GIB, cpu_run, metax_runs, metric, no_metric, no_peak, recorded

from flagperf.report.run_json import to_json


def exported(*runs):
    return json.loads(to_json(runs))["runs"]


def test_export_has_the_documented_fields():
    run = exported(recorded())[0]
    assert list(run) == [
        "id",
        "created",
        "status",
        "reason",
        "unfinished",
        "tags",
        "note",
        "case",
        "vendor",
        "adapter",
        "flagperf_version",
        "simulated",
        "redacted",
        "device",
        "shape",
        "precision",
        "overrides",
        "metrics",
        "rows",
        "environment",
        "doubts",
        "group",
    ]
    assert run["case"] == {
        "name": "distilbert",
        "version": 1,
        "kind": "training",
        "profile": "standard",
        "published": True,
    }
    assert run["shape"] == {"nodes": 1, "devices_per_node": 8, "devices": 8}
    assert run["device"] == {"model": "MetaX C500", "short_name": "C500", "memory_bytes": 64 * GIB}
    assert (run["status"], run["vendor"], run["simulated"]) == ("succeeded", "metax", False)


def test_metrics_are_unrounded_and_complete():
    core = exported(recorded())[0]["metrics"]["p_core"]
    assert core["value"] == 1755.55
    assert core["interval"] == {"low": 1750.1, "high": 1761.0, "method": "95 %, batch means"}
    assert set(core) == {
        "value",
        "unit",
        "scope",
        "definition",
        "reason",
        "detail",
        "message",
        "version",
        "marks",
        "interval",
        "inputs",
    }


def test_missing_value_is_null_with_its_reason():
    absent = exported(recorded(figures={"mfu": metric("mfu", None, reason="unknown_peak", detail="why")}))[0]
    assert absent["metrics"]["mfu"]["value"] is None
    assert absent["metrics"]["mfu"]["reason"] == "unknown_peak"


def test_the_words_for_a_missing_value_are_made_from_its_message():
    """Those beside it are not verified, and so not shown."""
    changed = no_metric("mfu", "unknown_peak", no_peak("metax", "C500", "fp32"))
    figures = {"mfu": msgspec.structs.replace(changed, detail="the vendor is to blame")}
    exported_detail = exported(recorded(figures=figures))[0]["metrics"]["mfu"]["detail"]
    assert exported_detail == "no peak is known for vendor metax, model C500, precision row fp32"


def test_overrides_have_value_and_layer():
    assert exported(metax_runs()[1])[0]["overrides"] == {
        "training.batch_size": {"value": 96, "layer": "tuning metax"},
        "training.learning_rate": {"value": 1.5e-4, "layer": "--set"},
    }


def test_a_changed_standard_profile_is_not_exported_as_published():
    published = [
        run["case"]["published"] for run in exported(*metax_runs(), recorded(tuning={"training.batch_size": 8}))
    ]
    assert published == [True, False, True, True]


def test_environment_of_every_node():
    first, second = exported(metax_runs()[0])[0]["environment"]
    assert (first["host"], second["host"]) == ("node0", "node1")
    assert first["facts"]["network"] == {
        "value": "InfiniBand, 2x200 Gb/s",
        "how": "stated",
        "reason": "",
        "message": None,
    }
    assert first["versions"] == {"driver": "2.9.8", "maca": "2.27.0"}
    assert first["packages"]["transformers"] == "4.44.0"


def test_simulated_failed_and_unfinished_runs_say_so():
    assert exported(recorded(simulated=True))[0]["vendor"] == "metax (simulated)"
    assert exported(metax_runs()[0])[0]["status"] == "out_of_memory"
    assert exported(recorded(ending=None))[0]["status"] is None


def test_export_is_the_same_every_time():
    assert to_json([cpu_run()]) == to_json([cpu_run()])
    assert json.loads(to_json([])) == {"schema": 1, "runs": []}

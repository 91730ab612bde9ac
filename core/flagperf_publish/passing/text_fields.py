"""What each text in the files of a bundle may hold.

An architecture test fails if a struct has a text that is not listed here: a new field leaves no machine before somebody
has said what it may hold.

- harmless: our own words, names of cases, vendors, models and versions; never changed
- text: words of tools, drivers, users and cases; searched for what was found anywhere, and for patterns
- witness: hashes over the original values, which are computed again
- a kind of identity: replaced as a whole, and searched for in all texts
"""

from __future__ import annotations

from typing import Literal

Identity = Literal["host", "address", "card", "pci", "serial", "boot", "path", "image", "setting"]
"""Of a field. `setting` is `name=value`, whose value is replaced."""

Use = Literal["harmless", "text", "texts_by_text", "witness", "properties", Identity]
"""`texts_by_text`: the keys are free text too. `properties`: name -> value, as a vendor's tool gives them."""


def _uses(**names: str) -> dict[str, Use]:
    return {name: use for use, listed in names.items() for name in listed.split()}  # type: ignore[misc]


FIELDS: dict[str, dict[str, Use]] = {
    # run.json
    "Run": _uses(harmless="id created flagperf_version metric_versions"),
    "RunGroup": _uses(harmless="id arm"),
    "RunSpec": _uses(
        harmless="case vendor precision profile parallel cluster",
        text="set interface",
        path="config data_dir peak_from replay",
        setting="cluster_options container_options",
        image="container",
    ),
    "Job": _uses(
        harmless="run_id case kind case_target profile vendor vendor_title adapter memory_scope case_package "
        "operator_libraries",
        address="master_address",
        path="data_dir",
    ),
    "Precision": _uses(harmless="name storage compute master_weights peak_row"),
    "Resolved": _uses(text="values layers deviations user_layers"),
    "PlannedNode": _uses(address="address", host="host"),
    "Device": _uses(
        harmless="model short_name near_cpus",
        text="slice problem",
        card="id uuid",
        pci="pci_address",
        serial="board",
        properties="properties",
    ),
    "Peak": _uses(harmless="model row", text="source measured_by"),
    "DataFile": _uses(harmless="sha256", text="path"),
    "Ending": _uses(text="reason"),
    "Message": _uses(harmless="code", text="params"),
    "LaunchCommand": _uses(harmless="remove", text="argv"),
    "Setting": _uses(harmless="name", text="value reason"),
    "RecordedOperators": {},
    # run.json: the case's own words, which its package gives to everybody
    "Manifest": _uses(
        harmless="name kind title task model dataset precisions default_profile values profiles mfu_formula "
        "sample_unit sequence_key page_names limits requires check_files estimate listing libraries_key engine"
    ),
    "Page": _uses(
        harmless="columns rows remarks titles parts parallel_library optimisation optimisation_keys downloads"
    ),
    "Profile": _uses(harmless="about values files"),
    "Quality": _uses(harmless="name unit definition"),
    "RowFigure": _uses(harmless="name title row where by remark"),
    "Target": _uses(harmless="metric key"),
    "Limit": _uses(harmless="choices"),
    "PublishedResult": _uses(harmless="vendor device precision overrides source values parallel engine sha256"),
    "PublishedRows": _uses(harmless="vendor device row source where by values"),
    "PublishedPages": _uses(harmless="models columns"),
    "PublishedConfiguration": _uses(harmless="device values source"),
    "NeededData": _uses(harmless="name files when url take command licence rows"),
    # run.json: what is computed from the events
    "Metric": _uses(harmless="name unit definition marks", text="detail", texts_by_text="inputs"),
    "Interval": _uses(harmless="method"),
    "MeasuredRow": _uses(
        harmless="unit work clock limits bound_by power_problem percentiles marks",
        text="name labels problem facts",
    ),
    "Span": {},
    "Speedup": _uses(text="against"),
    # environment.json
    "NodeFacts": _uses(host="host"),
    "Environment": _uses(harmless="facts packages", text="variables"),
    "Fact": _uses(text="value reason"),
    "VendorFacts": _uses(harmless="vendor adapter memory_scope versions", text="env_script probe error"),
    "Presence": _uses(text="evidence reason"),
    "Reading": _uses(text="missing throttle_reasons", card="device_id", properties="properties"),
    "MissingRequirement": _uses(harmless="requirement found"),
    # events and samples
    "Clock": _uses(harmless="wall", host="host", boot="boot_id"),
    "RunStarted": _uses(witness="planned environment", harmless="pid_namespace"),
    "WorkersLaunched": _uses(text="env_script"),
    "WorkersEnded": {},
    "RunEnded": _uses(harmless="status", text="reason"),
    "BundleSealed": _uses(witness="files own"),
    "WorkerStarted": _uses(harmless="mapping precision", text="framework", witness="job", card="device_id"),
    "ModelDescribed": {},
    "DataDescribed": _uses(harmless="sha256", text="name"),
    "SpanBegan": _uses(harmless="name"),
    "WarmupEnded": {},
    "StepFinished": _uses(harmless="work"),
    "SpanEnded": _uses(harmless="name"),
    "EvaluationAdvanced": {},
    "RowMeasured": _uses(harmless="unit work limits", text="name labels problem facts"),
    "RowTiming": {},
    "Reported": _uses(harmless="values"),
    "PartsReported": _uses(harmless="name by", texts_by_text="values"),
    "WorkerEnded": _uses(text="reason"),
    "ProbeStarted": _uses(harmless="vendor probe board_figures", text="not_used"),
    "Sampled": {},
    "CpuUse": {},
    "SampleMissed": _uses(text="reason"),
    "ProcessesListed": _uses(text="problem"),
    "ProcessReading": _uses(card="device_id"),
    "ProbeEnded": {},
    "ProbeFailed": _uses(text="reason"),
    # operators.json
    "Recording": _uses(harmless="run_id case profile precision vendor device torch"),
    "RecordedRanks": {},
    "RecordedTensor": _uses(harmless="dtype"),
    "TensorArgument": {},
    "WordArgument": _uses(harmless="value"),
    "ValueRange": {},
    "OperatorCall": _uses(harmless="operator ranges obstacle", text="args kwargs"),
}
"""Name of a struct -> its fields that hold text -> what that is. Structs inside are listed by themselves."""

PLAIN_PROPERTIES = frozenset({
    "chip", "driver", "firmware", "form", "index", "memory_form", "memory_missing", "name", "pci_id",
    "power_limit_watts", "problem", "runtime", "source", "tool_index", "tool_name", "vbios",
})  # fmt: skip
"""Properties of a card that identify no single one. The value of any other is taken for a serial number, unless it is a
version."""

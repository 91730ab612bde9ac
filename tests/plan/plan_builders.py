"""Small manifests, backends and node facts, with only what a test is about."""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.api import Activation, Device, DeviceBackend, Machine, Presence
from flagperf.spec.manifest import Manifest
from flagperf.spec.node_facts import Environment, NodeFacts, VendorFacts


def manifest(**changes: Any) -> Manifest:
    content: dict[str, Any] = {
        "name": "toy", "version": 1, "kind": "training", "title": {"en": "Toy"}, "task": {"en": "Play"},
        "model": "none", "dataset": "none", "precisions": ["fp32", "bf16"], "default_profile": "tiny",
        "page": {"columns": [], "rows": []},
        "values": {
            "precision": "fp32",
            "training": {"batch_size": 32, "learning_rate": 0.1, "epochs": 3, "shuffle": True, "optimizer": "adamw"},
            "data": {"splits": ["train", "test"]},
        },
        "profiles": {
            "tiny": {"about": {"en": "Small"}, "values": {"training": {"epochs": 1}}},
            "standard": {"about": {"en": "Large"}, "needs_data_dir": True},
        },
        **changes,
    }  # fmt: skip
    return msgspec.convert(content, Manifest)


class Backend(DeviceBackend):
    vendor = "acme"
    torch_type = "cpu"
    collective_backend = "gloo"
    precisions = ("fp32", "tf32")

    def presence(self, machine: Machine) -> Presence:
        return Presence("present")

    def devices(self, machine: Machine) -> list[Device]:
        return [Device("acme-0", "A1", "A1", 0)]

    def activate(self, local_rank: int, num_threads: int, devices: list[Device]) -> Activation:
        return Activation("cpu", "acme-0", "none")

    def synchronize(self) -> None: ...


def vendor(word: str, state: str = "present", **changes: Any) -> VendorFacts:
    """Facts of one adapter; state `error` is one that raised, `unasked` one that was not looked for."""
    facts = {
        "present": {"presence": Presence("present", (f"/dev/{word}0",))},
        "absent": {"presence": Presence("absent", reason=f"looked for /dev/{word}*")},
        "partial": {"presence": Presence("partial", (f"{word} on the bus",), "no node")},
        "error": {"presence": None, "error": f"its adapter flagperf-{word} 1.0 failed: OSError: tool broke"},
        "unasked": {"presence": None},
    }[state]
    return VendorFacts(word, f"flagperf-{word} 1.0", **{**facts, **changes})


def node(*vendors: VendorFacts) -> NodeFacts:
    return NodeFacts("host1", Environment({}, {}, {}), vendors, allowed_cores=2)

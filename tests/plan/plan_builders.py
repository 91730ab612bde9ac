"""Small manifests, plugins and node facts, with only what a test is about."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from flagperf.api import DeviceBackend, Presence
from flagperf.plugins.installed import Provided
from flagperf.plugins.loading import PluginStatus
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


def plugins(*backends: DeviceBackend, broken: Sequence[str] = (), **more: Any) -> Any:
    """A stand-in for Plugins with the vendors of these backends."""
    given = [Provided(backend, PluginStatus("p", f"flagperf-{backend.vendor}", "1")) for backend in backends]
    return SimpleNamespace(
        device_backends=lambda: given,
        checked_backend={backend.vendor: backend for backend in backends}.__getitem__,
        vendor_word=str.lower,
        broken_adapters=lambda: list(broken),
        **more,
    )


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

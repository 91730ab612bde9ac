"""The verb `describe`: what this node is and has. Takes a DescribeRequest, prints NodeFacts."""

from __future__ import annotations

import importlib.metadata
import socket
import time
from collections.abc import Sequence
from typing import IO

import msgspec

from flagperf.agent.adapter_query import AdapterQuery, finish_query, query_adapter, start_query
from flagperf.agent.environment import capture_environment
from flagperf.agent.simulation import node_machine
from flagperf.api import Machine
from flagperf.kit import allowed_cores
from flagperf.plugins.installed import Plugins, Provided, load_plugins
from flagperf.plugins.loading import OWN_DISTRIBUTION
from flagperf.spec import DescribeRequest, Fact, MissingRequirement, NodeFacts, VendorFacts

PACKAGES = (
    "flagperf", "torch", "accelerate", "transformers", "peft", "tokenizers", "safetensors", "sentencepiece",
    "datasets", "numpy", "pluggy", "psutil", "triton",
)  # fmt: skip


def main(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(request_text, type=DescribeRequest)
    stdout.write(msgspec.json.encode(describe(request, node_machine(), load_plugins())))
    return 0


def describe(request: DescribeRequest, machine: Machine, plugins: Plugins) -> NodeFacts:
    backends = plugins.device_backends()
    visibility = [name for given in backends for name in given.value.visibility_variables]
    packages = [*PACKAGES, *(name for given in backends for name in given.value.packages)]
    asked = [given for given in backends if request.vendor in (None, given.value.vendor)]
    deadline = time.monotonic() + request.adapter_seconds
    queries = _start_queries(asked, machine, plugins, request)
    environment = capture_environment(machine, packages, extra_variables=visibility)  # while the adapters search
    vendors = tuple(
        query_adapter(given, machine, plugins, request.with_memory)
        if query is None
        else finish_query(query, deadline - time.monotonic())
        for given, query in zip(asked, queries, strict=True)
    )
    environment.facts.update(_driver(vendors))
    return NodeFacts(
        host=socket.gethostname(),
        environment=environment,
        vendors=vendors,
        allowed_cores=allowed_cores(machine),
        missing_requirements=tuple(missing_requirements(request.requires)),
    )


def missing_requirements(requirements: Sequence[str]) -> list[MissingRequirement]:
    """Each requirement that this Python does not meet, with what was found."""
    from packaging.requirements import Requirement

    missing = []
    for text in requirements:
        requirement = Requirement(text)
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(MissingRequirement(text))
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            missing.append(MissingRequirement(text, version))
    return missing


def _start_queries(
    backends: Sequence[Provided], machine: Machine, plugins: Plugins, request: DescribeRequest
) -> list[AdapterQuery | None]:
    """All adapters in parallel, each in its own process. Our own looks for no hardware and needs no process."""
    return [
        None
        if given.plugin.distribution == OWN_DISTRIBUTION
        else start_query(given, machine, plugins, request.with_memory)
        for given in backends
    ]


def _driver(vendors: Sequence[VendorFacts]) -> dict[str, Fact]:
    versions = [f"{facts.vendor} {facts.versions['driver']}" for facts in vendors if "driver" in facts.versions]
    return {"driver": Fact(", ".join(versions))} if versions else {}

"""`agent describe`: what this node is and has. One JSON object on stdout."""

from __future__ import annotations

import importlib.metadata
import socket
from collections.abc import Sequence
from typing import IO

import msgspec

from flagperf.agent.environment import capture_environment
from flagperf.agent.probe import choose_probe
from flagperf.api import (
    Device,
    DeviceBackend,
    Machine,
    Reading,
    allowed_cores,
    memory_limit_bytes,
    memory_used_bytes,
)
from flagperf.plugins import Given, Plugins, load_plugins
from flagperf.spec import DescribeRequest, NodeFacts, VendorFacts

PACKAGES = (
    "flagperf", "torch", "accelerate", "transformers", "peft", "tokenizers", "safetensors", "datasets", "numpy",
    "pluggy", "psutil", "triton",
)  # fmt: skip


def main(stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(stdin.read() or b"{}", type=DescribeRequest)
    stdout.write(msgspec.json.encode(describe(request, Machine(), load_plugins())))
    return 0


def describe(request: DescribeRequest, machine: Machine, plugins: Plugins) -> NodeFacts:
    backends = plugins.device_backends()
    visibility = [name for given in backends for name in given.thing.visibility_variables]
    packages = [*PACKAGES, *(name for given in backends for name in given.thing.packages)]
    return NodeFacts(
        host=socket.gethostname(),
        environment=capture_environment(machine, packages, extra_variables=visibility),
        vendors=tuple(_vendor_facts(given, machine, plugins, request.with_memory) for given in backends),
        allowed_cores=allowed_cores(machine),
        free_port=_free_port(),
        missing_requirements=tuple(missing_requirements(request.requires)),
    )


def _vendor_facts(given: Given, machine: Machine, plugins: Plugins, with_memory: bool) -> VendorFacts:
    """An adapter that raises is this adapter's recorded error; the others are described all the same."""
    backend: DeviceBackend = given.thing
    facts = VendorFacts(backend.vendor, given.adapter, presence=None, memory_scope=backend.memory_scope)
    try:
        facts = msgspec.structs.replace(facts, presence=backend.presence(machine))
        if facts.presence is None or facts.presence.state != "present":
            return facts
        devices = tuple(backend.devices(machine))
        facts = msgspec.structs.replace(facts, devices=devices, versions=backend.versions(machine))
        if with_memory:
            probe, readings = _memory_now(backend, devices, machine, plugins)
            facts = msgspec.structs.replace(facts, probe=probe, readings=readings)
    except Exception as error:  # noqa: BLE001
        return msgspec.structs.replace(facts, error=f"{type(error).__name__}: {error}")
    return facts


def _memory_now(
    backend: DeviceBackend, devices: Sequence[Device], machine: Machine, plugins: Plugins
) -> tuple[str, tuple[Reading, ...]]:
    """Where all slots share the host's memory, the pool itself is what there is to see without workers."""
    if backend.memory_scope == "host":
        pool = Reading(devices[0].id, memory_used_bytes(machine), memory_limit_bytes(machine))
        return "host", (pool,)
    choice = choose_probe(plugins.memory_probes(backend.vendor), machine)
    if choice.probe is None:
        return "; ".join(f"{name}: {reason}" for name, reason in choice.not_used.items()), ()
    return choice.probe.name, tuple(choice.probe.sample(devices, None))


def missing_requirements(requirements: Sequence[str]) -> list[str]:
    """Each requirement that this Python does not meet, with what was found."""
    from packaging.requirements import Requirement

    missing = []
    for text in requirements:
        requirement = Requirement(text)
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{text} (not installed)")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{text} (found {version})")
    return missing


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])

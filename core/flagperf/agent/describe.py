"""The verb `describe`: what this node is and has. It takes a DescribeRequest and prints NodeFacts."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import select
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Sequence
from typing import IO

import msgspec

from flagperf.agent.leftovers import kill_group
from flagperf.agent.node_environment import capture_environment, is_simulated, node_machine
from flagperf.agent.probe import choose_probe
from flagperf.api import DeviceBackend, Machine, Reading
from flagperf.errors import BadInput, PluginFailed
from flagperf.kit import allowed_cores, memory_limit_bytes, memory_used_bytes
from flagperf.plugins.installed import Plugins, Provided, load_plugins
from flagperf.plugins.loading import OWN_DISTRIBUTION
from flagperf.processes import die_with_parent
from flagperf.spec.node_facts import Fact, MissingRequirement, NodeFacts, VendorFacts
from flagperf.spec.protocol import DescribeRequest
from flagperf.units import exit_status

PACKAGES = (
    "flagperf", "torch", "accelerate", "transformers", "peft", "tokenizers", "safetensors", "sentencepiece",
    "datasets", "numpy", "pluggy", "psutil", "triton",
)  # fmt: skip


def answer_describe(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(request_text, type=DescribeRequest)
    stdout.write(msgspec.json.encode(describe(request, node_machine(), load_plugins())))
    return 0


def describe(request: DescribeRequest, machine: Machine, plugins: Plugins) -> NodeFacts:
    """Ask all adapters at once, each in its own process, and capture the environment meanwhile."""
    backends = plugins.device_backends()
    visibility = [name for given in backends for name in given.value.visibility_variables]
    packages = [*PACKAGES, *(name for given in backends for name in given.value.packages)]
    asked = [given for given in backends if request.vendor in (None, given.value.vendor)]
    deadline = time.monotonic() + request.adapter_seconds
    queries = [
        start_query(given, machine, plugins, request.with_memory)
        if given.plugin.distribution != OWN_DISTRIBUTION
        else None  # our own looks for no hardware and needs no process
        for given in asked
    ]
    environment = capture_environment(machine, packages, extra_variables=visibility)
    vendors = tuple(
        query_adapter(given, machine, plugins, request.with_memory)
        if query is None
        else finish_query(query, deadline - time.monotonic())
        for given, query in zip(asked, queries, strict=True)
    )
    versions = [f"{facts.vendor} {facts.versions['driver']}" for facts in vendors if "driver" in facts.versions]
    if versions:
        environment.facts["driver"] = Fact(", ".join(versions))
    return NodeFacts(
        host=socket.gethostname(),
        environment=environment,
        vendors=vendors,
        allowed_cores=allowed_cores(machine),
        missing_requirements=tuple(missing_requirements(request.requires)),
    )


def missing_requirements(requirements: Sequence[str]) -> list[MissingRequirement]:
    """Return each requirement that this Python does not meet, with what was found."""
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


def query_adapter(given: Provided, machine: Machine, plugins: Plugins, with_memory: bool) -> VendorFacts:
    """Return what one adapter finds on this node. Whatever it raises, or returns against the contract, is its error."""
    backend: DeviceBackend = given.value
    facts = _no_findings(given)
    try:
        facts = msgspec.structs.replace(facts, presence=backend.presence(machine))
        if facts.presence is not None and facts.presence.state == "present":
            devices = tuple(backend.devices(machine))
            facts = msgspec.structs.replace(
                facts,
                devices=devices,
                versions=backend.versions(machine),
                env_script=plugins.launcher(backend.vendor).env_script(machine) or "",
            )
            if with_memory:
                facts = _with_memory(facts, backend, machine, plugins)
        return msgspec.json.decode(msgspec.json.encode(facts), type=VendorFacts)  # as the command will get them
    except BadInput as error:  # for the user to fix: the adapter is not at fault
        return msgspec.structs.replace(_no_findings(given), error=str(error))
    except PluginFailed as error:  # names the adapter already
        return msgspec.structs.replace(_no_findings(given), error=f"its {error}", has_failed=True)
    except BaseException as error:  # noqa: BLE001  a plugin boundary
        return _failed(given, f"{type(error).__name__}: {error}")


class AdapterQuery(msgspec.Struct, frozen=True):
    given: Provided
    pid: int
    answer: int
    """The reading end of its pipe."""
    errors: IO[bytes]


def start_query(given: Provided, machine: Machine, plugins: Plugins, with_memory: bool) -> AdapterQuery:
    """Run `query_adapter` in a process of its own: an adapter whose library hangs, crashes or prints affects no other.

    It is a fork of this process, which has loaded the adapter already and has no other thread. New interpreters would
    take most of the time of a command.
    """
    reading, writing = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()  # the tools that it starts can be stopped with it
            die_with_parent()
            for stream in (1, 2):
                os.dup2(errors.fileno(), stream)
            with os.fdopen(writing, "wb") as answer:
                answer.write(msgspec.json.encode(query_adapter(given, machine, plugins, with_memory)))
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    os.close(writing)
    return AdapterQuery(given, pid, reading, errors)


def finish_query(query: AdapterQuery, timeout_seconds: float) -> VendorFacts:
    deadline = time.monotonic() + max(0.0, timeout_seconds)
    output, has_ended = b"", False
    while not has_ended and select.select([query.answer], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(query.answer, 1 << 16)
        output += part
        has_ended = not part
    kill_group(query.pid)  # orphaned tools
    os.kill(query.pid, signal.SIGKILL)  # where it has no group yet; not reaped so far, so the pid is still its own
    status = os.waitstatus_to_exitcode(os.waitpid(query.pid, 0)[1])
    os.close(query.answer)
    if not has_ended:
        return _failed(query.given, "it did not answer in time; its driver or tool may hang")
    with contextlib.suppress(msgspec.DecodeError):  # it ended while it wrote
        return msgspec.json.decode(output, type=VendorFacts)
    if status < 0:
        return _failed(query.given, f"its process was {exit_status(status)}")
    query.errors.seek(0)
    return _failed(query.given, query.errors.read().decode(errors="replace").strip() or f"exit code {status}")


def _no_findings(given: Provided) -> VendorFacts:
    return VendorFacts(
        given.value.vendor,
        given.adapter,
        presence=None,
        memory_scope=given.value.memory_scope,
        simulated=is_simulated() and not given.value.is_fallback,
    )


def _failed(given: Provided, error: str) -> VendorFacts:
    words = f"its adapter {given.adapter} failed: {error}"
    return msgspec.structs.replace(_no_findings(given), error=words, has_failed=True)


def _with_memory(facts: VendorFacts, backend: DeviceBackend, machine: Machine, plugins: Plugins) -> VendorFacts:
    """Add the memory use of the cards, or the reason why it is not known."""
    if backend.memory_scope == "host":  # all slots share it: that pool is all there is to read without workers
        pool = Reading(facts.devices[0].id, memory_used_bytes(machine), memory_limit_bytes(machine))
        return msgspec.structs.replace(facts, probe="host", readings=(pool,))
    try:
        choice = choose_probe(plugins.memory_probes(backend.vendor), machine)
    except PluginFailed as error:
        return msgspec.structs.replace(facts, probe=str(error), has_failed=True)
    if choice.probe is None:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in choice.not_used.items())
        return msgspec.structs.replace(facts, probe=reasons)
    try:
        readings = tuple(choice.probe.sample(facts.devices, None))
    except BaseException as error:  # noqa: BLE001  a plugin boundary: the cards are there, their memory is not known
        why = f"{choice.probe.name}: {type(error).__name__}: {error}"
        return msgspec.structs.replace(facts, probe=why)
    return msgspec.structs.replace(facts, probe=choice.probe.name, readings=readings)

"""The verb `describe`: what this node is and has. Takes a DescribeRequest, prints NodeFacts."""

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
from collections.abc import Callable, Sequence
from typing import IO, NoReturn

import msgspec

from flagperf.agent.leftovers import kill_group
from flagperf.agent.node_environment import capture_environment, is_simulated, node_machine
from flagperf.agent.probe import choose_probe
from flagperf.api import Device, DeviceBackend, Machine, Reading
from flagperf.errors import BadInput, PluginFailed
from flagperf.kit import allowed_cores, memory_limit_bytes, memory_used_bytes
from flagperf.plugins.installed import Plugins, Provided, load_plugins
from flagperf.plugins.loading import OWN_DISTRIBUTION
from flagperf.processes import die_with_parent
from flagperf.spec.node_facts import Fact, MissingRequirement, NodeFacts, VendorFacts
from flagperf.spec.protocol import DescribeRequest
from flagperf.units import exit_status

# What one installed adapter finds on this node. It is asked in a process of its own, so that an adapter whose library
# hangs, crashes or prints affects no other adapter.


def query_adapter(given: Provided, machine: Machine, plugins: Plugins, with_memory: bool) -> VendorFacts:
    """Whatever the adapter raises, or returns against the contract, is recorded as its error."""
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
    """`query_adapter` in a fork of this process, which has loaded the adapter already: a new interpreter for each of
    several adapters would take most of the time of a command. This process has no other thread."""
    reading, writing = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
    pid = os.fork()
    if pid == 0:
        _answer(lambda: query_adapter(given, machine, plugins, with_memory), writing, errors)
    os.close(writing)
    return AdapterQuery(given, pid, reading, errors)


def _answer(find: Callable[[], VendorFacts], writing: int, errors: IO[bytes]) -> NoReturn:
    """The child's side, in a session of its own so that the tools it starts can be stopped with it."""
    code = 1
    try:
        os.setsid()
        die_with_parent()
        for stream in (1, 2):
            os.dup2(errors.fileno(), stream)
        with os.fdopen(writing, "wb") as answer:
            answer.write(msgspec.json.encode(find()))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def finish_query(query: AdapterQuery, timeout_seconds: float) -> VendorFacts:
    deadline = time.monotonic() + max(0.0, timeout_seconds)
    output, has_ended = _read_until(query.answer, deadline)
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


def _read_until(answer: int, deadline: float) -> tuple[bytes, bool]:
    """What was read, and whether the other end was closed in time."""
    output = b""
    while select.select([answer], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(answer, 1 << 16)
        if not part:
            return output, True
        output += part
    return output, False


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
    """Where the adapter cannot name its probes, its cards are known all the same."""
    try:
        probe, readings = _memory_now(backend, facts.devices, machine, plugins)
    except PluginFailed as error:
        return msgspec.structs.replace(facts, probe=str(error), has_failed=True)
    return msgspec.structs.replace(facts, probe=probe, readings=readings)


def _memory_now(
    backend: DeviceBackend, devices: Sequence[Device], machine: Machine, plugins: Plugins
) -> tuple[str, tuple[Reading, ...]]:
    """Where all slots share the host's memory, that pool is all there is to read without workers."""
    if backend.memory_scope == "host":
        return "host", (Reading(devices[0].id, memory_used_bytes(machine), memory_limit_bytes(machine)),)
    choice = choose_probe(plugins.memory_probes(backend.vendor), machine)
    if choice.probe is None:
        return "; ".join(f"{name}: {reason}" for name, reason in choice.not_used.items()), ()
    try:
        return choice.probe.name, tuple(choice.probe.sample(devices, None))
    except BaseException as error:  # noqa: BLE001  a plugin boundary: the cards are there, their memory is not known
        return f"{choice.probe.name}: {type(error).__name__}: {error}", ()


PACKAGES = (
    "flagperf", "torch", "accelerate", "transformers", "peft", "tokenizers", "safetensors", "sentencepiece",
    "datasets", "numpy", "pluggy", "psutil", "triton",
)  # fmt: skip


def answer_describe(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
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

"""`agent adapter`: what one installed adapter finds on this node. A process of its own, started by `describe`: an
adapter whose library hangs, crashes or prints hurts nobody else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

import msgspec

from flagperf.agent.probe import choose_probe
from flagperf.agent.processes import kill_group
from flagperf.agent.simulation import is_simulated, node_machine
from flagperf.api import Device, DeviceBackend, Machine, Reading, memory_limit_bytes, memory_used_bytes, module_command
from flagperf.plugins import Given, Plugins, load_plugins
from flagperf.spec import AdapterRequest, VendorFacts


def main(stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(stdin.read(), type=AdapterRequest)
    plugins = load_plugins()
    facts = look(plugins.device_given(request.vendor), node_machine(), plugins, request.with_memory)
    stdout.write(msgspec.json.encode(facts))
    return 0


def look(given: Given, machine: Machine, plugins: Plugins, with_memory: bool) -> VendorFacts:
    """Whatever the adapter raises, or gives that the contract does not know, is its recorded error."""
    backend: DeviceBackend = given.thing
    facts = unseen(given)
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
                probe, readings = _memory_now(backend, devices, machine, plugins)
                facts = msgspec.structs.replace(facts, probe=probe, readings=readings)
        return msgspec.convert(msgspec.to_builtins(facts), VendorFacts)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a plugin boundary
        return failed(given, f"{type(error).__name__}: {error}")


def start(given: Given, with_memory: bool) -> subprocess.Popen[bytes]:
    """The same in a child, in a session of its own so that the tools it started can be stopped with it."""
    child = subprocess.Popen(
        [*module_command(sys.executable, "flagperf.agent"), "adapter"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(msgspec.json.encode(AdapterRequest(given.thing.vendor, with_memory)))
    child.stdin.close()
    child.stdin = None
    return child


def finish(given: Given, child: subprocess.Popen[bytes], timeout_seconds: float) -> VendorFacts:
    try:
        output, errors = child.communicate(timeout=max(0.0, timeout_seconds))
    except subprocess.TimeoutExpired:
        kill_group(child.pid)
        child.communicate()
        return failed(given, "it did not answer in time; its driver or tool may hang")
    if child.returncode < 0:
        return failed(given, f"its process was killed by {signal.Signals(-child.returncode).name}")
    if child.returncode:
        return failed(given, errors.decode(errors="replace").strip() or f"exit code {child.returncode}")
    return msgspec.json.decode(output, type=VendorFacts)


def unseen(given: Given) -> VendorFacts:
    return VendorFacts(
        given.thing.vendor,
        given.adapter,
        presence=None,
        memory_scope=given.thing.memory_scope,
        simulated=is_simulated() and not given.thing.is_fallback,
    )


def failed(given: Given, error: str) -> VendorFacts:
    return msgspec.structs.replace(unseen(given), error=error)


def _memory_now(
    backend: DeviceBackend, devices: Sequence[Device], machine: Machine, plugins: Plugins
) -> tuple[str, tuple[Reading, ...]]:
    """Where all slots share the host's memory, the pool itself is what there is to see without workers."""
    if backend.memory_scope == "host":
        return "host", (Reading(devices[0].id, memory_used_bytes(machine), memory_limit_bytes(machine)),)
    choice = choose_probe(plugins.memory_probes(backend.vendor), machine)
    if choice.probe is None:
        return "; ".join(f"{name}: {reason}" for name, reason in choice.not_used.items()), ()
    return choice.probe.name, tuple(choice.probe.sample(devices, None))

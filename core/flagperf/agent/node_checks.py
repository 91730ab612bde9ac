"""Verbs `inspect`, `rendezvous`, `check`."""

from __future__ import annotations

import importlib
import ipaddress
import os
import resource
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import IO

import msgspec

from flagperf.agent.describe import describe
from flagperf.agent.node_environment import node_machine
from flagperf.api import CheckFiles, DataFile
from flagperf.errors import BadInput, NodeFailed
from flagperf.plugins.installed import load_plugins
from flagperf.plugins.loading import typed
from flagperf.spec.protocol import (
    CheckAnswer,
    CheckRequest,
    InspectRequest,
    NodeState,
    RendezvousAnswer,
    RendezvousRequest,
)

# The verb `rendezvous`: where the ranks of a run meet. Takes a RendezvousRequest on the first node right before the
# run, prints a RendezvousAnswer: an IP address and a port that is free now. Names are not used: other nodes may not
# know them, and torch waits for minutes before it says so.


def answer_rendezvous(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(request_text, type=RendezvousRequest)
    address = _address(request)
    stdout.write(msgspec.json.encode(RendezvousAnswer(address, free_port(address))))
    return 0


def _address(request: RendezvousRequest) -> str:
    """By the interface that the user gave, else as the cluster says, else the address that the command itself came by,
    else the only one that there is."""
    if request.interface:
        return address_of(request.interface)
    if _is_ip(request.address):
        return request.address
    came_by = os.environ.get("SSH_CONNECTION", "").split()[2:3]
    if came_by and _is_ip(came_by[0]) and not ipaddress.ip_address(came_by[0]).is_loopback:
        return came_by[0]
    found = _addresses()
    outside = {name: given for name, given in found.items() if not ipaddress.ip_address(given[0]).is_loopback}
    if len(outside) != 1:
        raise NodeFailed(f"which address the nodes reach this one by is not clear: {_listed(found)}; give --interface")
    return next(iter(outside.values()))[0]


def interface_to(address: str) -> str:
    """The name of the interface by which this node reaches an address; empty on the loopback interface, which gloo
    finds by itself."""
    own = own_address_to(address)
    if ipaddress.ip_address(own).is_loopback:
        return ""
    return next((name for name, given in _addresses().items() if own in given), "")


def own_address_to(address: str) -> str:
    """This node's address as the other one would see it. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError as error:
            raise NodeFailed(f"no way to the first node, {address}: {error.strerror}") from None
        return str(probe.getsockname()[0])


def address_of(interface: str) -> str:
    found = _addresses()
    if interface not in found:
        raise NodeFailed(f"no interface {interface!r} with an address; there are {_listed(found)}")
    return found[interface][0]


def free_port(address: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        try:
            listener.bind((address, 0))
        except OSError as error:
            raise NodeFailed(f"{address} is no address of this node: {error.strerror}") from None
        return int(listener.getsockname()[1])


def _addresses() -> dict[str, list[str]]:
    """Of each interface that is up, IPv4 first; no link-local ones."""
    import psutil

    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    found: dict[str, list[str]] = {}
    for name, given in psutil.net_if_addrs().items():
        internet = [each.address for each in given if each.family in (socket.AF_INET, socket.AF_INET6)]
        usable = [each for each in internet if _is_ip(each) and not ipaddress.ip_address(each).is_link_local]
        if name in up and usable:
            found[name] = sorted(usable, key=lambda each: ":" in each)
    return found


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _listed(found: dict[str, list[str]]) -> str:
    return ", ".join(f"{name} ({given[0]})" for name, given in found.items()) or "none"


# The verb `inspect`: whether this node can be part of a run. Takes an InspectRequest; prints its clock at once, so
# that the way there and back is all that makes the time inexact, then a NodeState.


RDMA_FOLDER = Path("/sys/class/infiniband")


def answer_inspect(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    stdout.write(b"%d\n" % time.time_ns())
    stdout.flush()
    request = msgspec.json.decode(request_text, type=InspectRequest)
    stdout.write(msgspec.json.encode(inspect(request)) + b"\n")
    return 0


def inspect(request: InspectRequest) -> NodeState:
    plugins = load_plugins()
    interface, address, network_problem = _network(request)
    return NodeState(
        facts=describe(request.describe, node_machine(), plugins),
        python=sys.executable,
        broken_adapters=tuple(plugins.broken_adapters()),
        interface=interface,
        address=address,
        network_problem=network_problem,
        data_problem=_data_problem(request.data_dir),
        shm_bytes=_shm_bytes(),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        max_files=_limit(resource.RLIMIT_NOFILE),
        has_rdma=RDMA_FOLDER.is_dir() and any(RDMA_FOLDER.iterdir()),
    )


def _network(request: InspectRequest) -> tuple[str, str, str]:
    """Interface, own address, and what is wrong with them."""
    interface = address = ""
    try:
        if request.interface:
            interface, address = request.interface, address_of(request.interface)
        elif request.first_address:
            address = own_address_to(request.first_address)
            interface = interface_to(request.first_address)
        if address:
            free_port(address)
    except NodeFailed as error:
        return interface, address, str(error)
    return interface, address, ""


def _data_problem(data_dir: str | None) -> str:
    """Listing is trying: root may read everything but what a network file system refuses."""
    if data_dir is None:
        return ""
    try:
        os.listdir(data_dir)  # noqa: PTH208
    except OSError as error:
        return f"the data folder {data_dir} cannot be read: {error.strerror}"
    return ""


def _shm_bytes() -> int:
    try:
        state = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return state.f_blocks * state.f_frsize


def _limit(which: int) -> int | None:
    """The soft one, which processes start with."""
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


# The verb `check`: the case checks its values and the data on this node, before any process starts.


def answer_check(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(request_text, type=CheckRequest)
    stdout.write(msgspec.json.encode(check(request)))
    return 0


def check(request: CheckRequest) -> CheckAnswer:
    """Whatever the case's function raises becomes the answer, with the line where it happened."""
    try:
        files = _function(request.check_files)(Path(request.data_dir) if request.data_dir else None, request.values)
        return CheckAnswer(typed(files, tuple[DataFile, ...]))
    except BadInput as error:
        return CheckAnswer(problem=str(error))
    except BaseException as error:  # noqa: BLE001  a plugin boundary
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({place.filename} line {place.lineno})"
        return CheckAnswer(problem=f"{request.check_files}, the case's check of its data, failed: {what}")


def _function(reference: str) -> CheckFiles:
    module, _, name = reference.partition(":")
    function: CheckFiles = getattr(importlib.import_module(module), name)
    return function

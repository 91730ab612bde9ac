"""The verbs `rendezvous` (where the ranks meet), `inspect` (can this node be part of a run?) and `check` (is the data
here?)."""

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

RDMA_FOLDER = Path("/sys/class/infiniband")


def answer_rendezvous(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    """Print where the ranks of a run meet: an IP address and a port that is free now. The first node is asked, right
    before the run. Names are not used: other nodes may not know them, and torch waits for minutes before it says so."""
    request = msgspec.json.decode(request_text, type=RendezvousRequest)
    address = meeting_address(request)
    stdout.write(msgspec.json.encode(RendezvousAnswer(address, free_port(address))))
    return 0


def meeting_address(request: RendezvousRequest) -> str:
    """Return the address of the interface that the user gave, else the one that the cluster says, else the one that the
    command itself came by, else the only one that there is. Raise NodeFailed where that is not clear."""
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
    """Return the interface by which this node reaches an address, or an empty name for the loopback interface, which
    gloo finds by itself."""
    own = own_address_to(address)
    if ipaddress.ip_address(own).is_loopback:
        return ""
    return next((name for name, given in _addresses().items() if own in given), "")


def own_address_to(address: str) -> str:
    """Return this node's address as the other one would see it. Send nothing."""
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
            raise NodeFailed(f"{address} is not an address of this node: {error.strerror}") from None
        return int(listener.getsockname()[1])


def _addresses() -> dict[str, list[str]]:
    """Return the addresses of each interface that is up, IPv4 first, without link-local ones."""
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


def answer_inspect(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    """Print this node's clock, then its NodeState. The clock comes first: the way there and back is all that makes it
    inexact."""
    stdout.write(b"%d\n" % time.time_ns())
    stdout.flush()
    request = msgspec.json.decode(request_text, type=InspectRequest)
    stdout.write(msgspec.json.encode(inspect(request)) + b"\n")
    return 0


def inspect(request: InspectRequest) -> NodeState:
    interface = address = network_problem = data_problem = ""
    try:
        if request.interface:
            interface, address = request.interface, address_of(request.interface)
        elif request.first_address:
            address = own_address_to(request.first_address)
            interface = interface_to(request.first_address)
        if address:
            free_port(address)
    except NodeFailed as error:
        network_problem = str(error)
    try:
        if request.data_dir is not None:
            os.listdir(request.data_dir)  # noqa: PTH208  root may read all but what a network file system refuses
    except OSError as error:
        data_problem = f"the data folder {request.data_dir} cannot be read: {error.strerror}"
    try:
        shm = os.statvfs("/dev/shm")
        shm_bytes = shm.f_blocks * shm.f_frsize
    except OSError:
        shm_bytes = 0
    plugins = load_plugins()
    return NodeState(
        facts=describe(request.describe, node_machine(), plugins),
        python=sys.executable,
        broken_adapters=tuple(plugins.broken_adapters()),
        interface=interface,
        address=address,
        network_problem=network_problem,
        data_problem=data_problem,
        shm_bytes=shm_bytes,
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        max_files=_limit(resource.RLIMIT_NOFILE),
        has_rdma=RDMA_FOLDER.is_dir() and any(RDMA_FOLDER.iterdir()),
    )


def _limit(which: int) -> int | None:
    """Return the soft limit, which processes start with."""
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def answer_check(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(request_text, type=CheckRequest)
    stdout.write(msgspec.json.encode(check(request)))
    return 0


def check(request: CheckRequest) -> CheckAnswer:
    """Have the case check its values and the data on this node, before any process starts. Whatever its function raises
    becomes the answer, with the line where it happened."""
    try:
        module, _, name = request.check_files.partition(":")
        check_files: CheckFiles = getattr(importlib.import_module(module), name)
        files = check_files(Path(request.data_dir) if request.data_dir else None, request.values)
        return CheckAnswer(typed(files, tuple[DataFile, ...]))
    except BadInput as error:
        return CheckAnswer(problem=str(error))
    except BaseException as error:  # noqa: BLE001  a plugin boundary
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({place.filename} line {place.lineno})"
        return CheckAnswer(problem=f"{request.check_files}, the case's check of its data, failed: {what}")

"""The verb `inspect`: whether this node can be part of a run. Takes an InspectRequest; prints its clock at once, so
that the way there and back is all that makes the time inexact, then a NodeState.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import IO

import msgspec

from flagperf.agent.describe import describe
from flagperf.agent.rendezvous import address_of, free_port, interface_to, own_address_to
from flagperf.agent.simulation import node_machine
from flagperf.errors import NodeFailed
from flagperf.plugins.installed import load_plugins
from flagperf.spec import InspectRequest, NodeState

RDMA_FOLDER = Path("/sys/class/infiniband")


def main(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
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

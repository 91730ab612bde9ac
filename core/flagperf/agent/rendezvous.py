"""The verb `rendezvous`: where the ranks of a run meet. Takes a RendezvousRequest on the first node right before the
run, prints a RendezvousAnswer: an IP address and a port that is free now. Names are not used: other nodes may not know
them, and torch waits for minutes before it says so.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import IO

import msgspec

from flagperf.errors import NodeFailed
from flagperf.spec import RendezvousAnswer, RendezvousRequest


def main(request_text: bytes, _stdin: IO[bytes], stdout: IO[bytes]) -> int:
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

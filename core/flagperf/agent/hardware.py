"""What a node is built of apart from its cards: the model of the machine, its CPUs, its network.

Everything is read from the kernel's own files. What they do not say is absent, with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flagperf.api import Machine
from flagperf.messages import Message, message
from flagperf.spec import Fact, absent_fact

_PLACEHOLDERS = frozenset({
    "", "-", "0", "default string", "empty", "invalid", "n/a", "none", "not applicable", "not specified", "o.e.m.",
    "oem", "product name", "system manufacturer", "system name", "system product name", "system vendor",
    "undefined", "unknown",
})  # fmt: skip
"""What firmware holds where the maker of the board left the field as it was; compared in lower case."""


def machine_model(machine: Machine) -> Fact:
    """Maker and product by DMI; the device tree's model where there is no usable DMI, as on ARM boards."""
    maker = _one_line(machine.read("/sys/class/dmi/id/sys_vendor") or "")
    product = machine.read("/sys/class/dmi/id/product_name")
    if product is not None and not _is_placeholder(product):
        product = _one_line(product)
        repeats = product.lower().startswith(maker.lower())
        return Fact(product if repeats or _is_placeholder(maker) else f"{maker} {product}")
    board = _one_line(machine.read("/proc/device-tree/model") or "")
    if board:
        return Fact(board)
    if product is None:
        return absent_fact("environment.no_machine_name")
    return absent_fact("environment.placeholder", path="/sys/class/dmi/id/product_name", word=repr(_one_line(product)))


def cpu_model(machine: Machine) -> Fact:
    """`2 x AMD EPYC 7742 64-Core Processor (128 cores)`; the number of logical CPUs where cores are not told apart."""
    cpus = _cpuinfo_blocks(machine.read("/proc/cpuinfo") or "")
    named = [cpu for cpu in cpus if not _is_placeholder(cpu.get("model name", ""))]
    return Fact(_describe_cpus(named)) if named else _cpu_by_lscpu(machine)


def network_links(machine: Machine) -> Fact:
    """The active InfiniBand or RoCE ports; where there are none, the fastest physical Ethernet interfaces."""
    fabric, fabric_problems = _fabric_ports(machine)
    if fabric:
        return Fact(_describe_links(fabric))
    ethernet, down, unknown = _ethernet_ports(machine)
    if ethernet and not unknown:
        fastest = max(link.gigabits for link in ethernet)
        return Fact(_describe_links([link for link in ethernet if link.gigabits == fastest]))
    problems = [*fabric_problems, *unknown, *down]
    return absent_fact("environment.links", links=problems) if problems else absent_fact("environment.no_interface")


def _cpuinfo_blocks(text: str) -> list[dict[str, str]]:
    """One dictionary per logical CPU. Keys in lower case: some architectures write `Model Name`."""
    return [_fields(block) for block in re.split(r"\n\s*\n", text)]


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip().lower(): _one_line(value) for key, colon, value in pairs if colon}


def _describe_cpus(cpus: Sequence[dict[str, str]]) -> str:
    sockets = {cpu.get("physical id", ""): cpu for cpu in cpus}
    per_socket = [_number(cpu.get("cpu cores")) for cpu in sockets.values()]
    num_cores = sum(filter(None, per_socket))
    if "" in sockets or not all(per_socket):
        return f"{' + '.join(_unique(cpu['model name'] for cpu in cpus))} ({_count(len(cpus), 'logical CPU')})"
    models = Counter(cpu["model name"] for cpu in sockets.values())
    return f"{' + '.join(_times(num, model) for model, num in models.items())} ({_count(num_cores, 'core')})"


def _cpu_by_lscpu(machine: Machine) -> Fact:
    """ARM kernels give part numbers, which lscpu knows the names of."""
    output = machine.run_tool(["lscpu"], timeout_seconds=2.0)
    if not output.ok:
        why = output.problem or message("tool.ended", tool="lscpu", code=output.returncode)
        return absent_fact("environment.no_cpu_name_because", why=why)
    names = re.findall(r"^\s*Model name:(.*)$", output.stdout, re.MULTILINE)
    models = _unique(_one_line(name) for name in names if not _is_placeholder(name))
    if not models:
        return absent_fact("environment.no_cpu_name")
    fields = _fields(output.stdout)
    num_sockets, cores_per_socket = _number(fields.get("socket(s)")), _number(fields.get("core(s) per socket"))
    if len(models) == 1 and num_sockets and cores_per_socket:
        return Fact(f"{_times(num_sockets, models[0])} ({_count(num_sockets * cores_per_socket, 'core')})")
    # Newer versions count clusters and put `-` for the sockets; of two kinds of core only the sum is of use.
    num_logical = _number(fields.get("cpu(s)"))
    label = " + ".join(models)
    return Fact(f"{label} ({_count(num_logical, 'logical CPU')})" if num_logical else label)


class _Link(NamedTuple):
    kind: str
    gigabits: float
    is_virtual_function: bool
    """Shares the wire of a physical function, so that counting both would count the wire twice."""


def _fabric_ports(machine: Machine) -> tuple[list[_Link], list[Message]]:
    """The active RDMA ports, and what is wrong with the others. An adapter without `device` is emulated in software."""
    physical = {path.parent.name for path in machine.glob("/sys/class/infiniband/*/device")}
    links: list[_Link] = []
    problems: list[Message] = []
    for path in machine.glob("/sys/class/infiniband/*/ports/*"):
        adapter = path.parent.parent.name
        if adapter not in physical:
            continue
        port = f"/sys/class/infiniband/{adapter}/ports/{path.name}"
        state = (machine.read(f"{port}/state") or "unreadable").rpartition(":")[2].strip()
        rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", machine.read(f"{port}/rate") or "")
        if state != "ACTIVE":
            problems.append(message("environment.port_state", adapter=adapter, port=path.name, state=state))
        elif rate is None:
            problems.append(message("environment.port_rate", adapter=adapter, port=path.name))
        else:
            is_virtual = bool(machine.glob(f"/sys/class/infiniband/{adapter}/device/physfn"))
            links.append(_Link(_fabric_kind(machine, adapter, port), float(rate[1]), is_virtual))
    return _one_per_wire(links), problems


def _fabric_kind(machine: Machine, adapter: str, port: str) -> str:
    layer = machine.read(f"{port}/link_layer")
    if layer == "Ethernet":
        node_type = machine.read(f"/sys/class/infiniband/{adapter}/node_type") or ""
        return "iWARP" if "RNIC" in node_type else "RoCE"
    return "InfiniBand" if layer == "InfiniBand" else "RDMA"


def _ethernet_ports(machine: Machine) -> tuple[list[_Link], list[Message], list[Message]]:
    """The interfaces of known speed, those that are down, and those that are up at an unknown speed.

    One of the last kind could be the fastest, so the fastest is then unknown.
    """
    links: list[_Link] = []
    down: list[Message] = []
    unknown: list[Message] = []
    for path in machine.glob("/sys/class/net/*/device"):
        name = path.parent.name
        interface = f"/sys/class/net/{name}"
        is_wireless = bool(machine.glob(f"{interface}/phy80211"))
        if name == "lo" or is_wireless or machine.read(f"{interface}/type") not in (None, "1"):
            continue
        state = machine.read(f"{interface}/operstate") or "unreadable"
        speed = machine.read(f"{interface}/speed")
        megabits = _number(speed)
        # Some drivers never set the state: `unknown` with a speed works. Older kernels print -1 as 2**32 - 1.
        if state not in ("up", "unknown"):
            down.append(message("environment.interface_state", name=name, state=state))
        elif megabits and megabits < 2**32 - 1:
            is_virtual = bool(machine.glob(f"{interface}/device/physfn"))
            links.append(_Link("Ethernet", megabits / 1000, is_virtual))
        else:
            unknown.append(_unknown_speed(name, speed))
    return _one_per_wire(links), down, unknown


def _unknown_speed(name: str, speed: str | None) -> Message:
    if speed is None:
        return message("environment.speed_unreadable", name=name)
    return message("environment.speed", name=name, speed=repr(speed))


def _one_per_wire(links: list[_Link]) -> list[_Link]:
    return [link for link in links if not link.is_virtual_function] or links


def _describe_links(links: Sequence[_Link]) -> str:
    """`InfiniBand, 2 x 200 Gb/s`, the fastest kind first."""
    kinds = Counter((link.kind, link.gigabits) for link in links)
    fastest_first = sorted(kinds.items(), key=lambda item: (-item[0][1], item[0][0]))
    return "; ".join(f"{kind}, {_times(num, f'{gigabits:g} Gb/s')}" for (kind, gigabits), num in fastest_first)


def _is_placeholder(text: str) -> bool:
    lowered = _one_line(text).lower()
    return lowered in _PLACEHOLDERS or lowered.startswith("to be filled by")


def _one_line(text: str) -> str:
    return " ".join(text.replace("\x00", " ").split())


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _times(num: int, what: str) -> str:
    return what if num == 1 else f"{num} x {what}"


def _count(num: int, what: str) -> str:
    return f"{num} {what}" if num == 1 else f"{num} {what}s"


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))

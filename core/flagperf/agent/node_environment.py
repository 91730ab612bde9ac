"""Machine, CPUs, network, software, variables; simulation."""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

import msgspec

from flagperf.api import CommandOutput, Machine
from flagperf.errors import BadInput
from flagperf.files import is_folder
from flagperf.messages import Message, message
from flagperf.spec.node_facts import Environment, Fact, absent_fact

# What a node is built of apart from its cards: the model of the machine, its CPUs, its network.
#
# Everything is read from the kernel's own files. What they do not say is absent, with the reason.


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


# What a node runs on, captured by its agent: hardware without the cards, software, and variables that change results.
#
# Nothing here raises, guesses, uses the network or imports torch. A fact that cannot be found is absent, with the
# reason.


RESULT_VARIABLES = (
    "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_SCHEDULE", "OMP_PROC_BIND", "OMP_PLACES",
    "OMP_WAIT_POLICY", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS", "MKL_DYNAMIC",
    "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "NUMEXPR_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "DNNL_DEFAULT_FPMATH_MODE",
    "ATEN_CPU_CAPABILITY", "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_CONF",
    "PYTHONHASHSEED", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTORCH_ALLOC_CONF", "PYTORCH_JIT",
    "PYTORCH_TUNABLEOP_ENABLED", "TORCH_COMPILE_BACKEND", "TORCH_COMPILE_DISABLE", "TORCH_DISTRIBUTED_DEBUG",
    "TORCHDYNAMO_DISABLE", "TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_MAX_AUTOTUNE", "ACCELERATE_DYNAMO_BACKEND",
    "ACCELERATE_MIXED_PRECISION", "TOKENIZERS_PARALLELISM", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME",
    "UCX_NET_DEVICES", "UCX_TLS",
)  # fmt: skip
"""The only variables that leave the machine, together with those that an adapter names for its cards."""

_TOOL_SECONDS = 2.0
"""docker and git answer in milliseconds; on a file system that hangs, a missing fact is better than a long wait."""

_INIT_SYSTEMS = ("systemd", "init")

_CGROUP_HINTS = {
    "kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "crio": "cri-o", "containerd": "containerd",
    "lxc": "lxc",
}  # fmt: skip

_SECRET_WORDS = frozenset({"AUTH", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSWD", "PASSWORD", "SECRET", "TOKEN"})

_SECRET_VALUE = re.compile(
    r"://\S*@"  # a URL with credentials
    r"|[^\s/:@]+:[^\s/:@]\S*@"  # user:password@host
    r"|\b(?:token|secret|password|passwd|api_?key)=",
    re.IGNORECASE,
)


def capture_environment(machine: Machine, packages: Sequence[str], extra_variables: Sequence[str] = ()) -> Environment:
    """`packages` are distributions that a run uses; `extra_variables` are the names that adapters add to the list."""
    facts = {
        "machine": machine_model(machine),
        "cpu": cpu_model(machine),
        "network": network_links(machine),
        "os": _os(machine),
        "kernel": _kernel(machine),
        "container": _container(machine),
        "docker": _docker(machine),
        "driver": absent_fact("environment.no_driver"),
        "framework": _framework(),
        "python": Fact(f"{platform.python_implementation()} {platform.python_version()}"),
        "commit": source_commit(machine, Path(__file__).resolve().parent.parent),
    }
    versions = {name: version for name in packages if (version := _version(name)) is not None}
    return Environment(facts, versions, _variables(machine.environ, extra_variables))


def source_commit(machine: Machine, source: Path) -> Fact:
    """The commit of the package at `source`: of the work tree that tracks it, else of what pip installed it from.

    Asking whether git tracks the file keeps out the commit of a project that merely has the virtual environment in it.
    """
    tracked = _git(machine, source, "ls-files", "--error-unmatch", "--", "__init__.py")
    if tracked.ok:
        head = _git(machine, source, "rev-parse", "--verify", "HEAD")
        if head.ok and _is_commit(head.stdout.strip()):
            return Fact(head.stdout.strip() + _changes(machine, source))
        return absent_fact("environment.no_commit", path=str(source), why=_problem("git", head))
    installed = _installed_commit(source)
    if installed is not None:
        return Fact(installed)
    return absent_fact("environment.not_tracked", path=str(source), why=_problem("git", tracked))


def _git(machine: Machine, source: Path, *arguments: str) -> CommandOutput:
    """Takes no lock in the work tree and starts no monitor that its configuration may name."""
    safe = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(source))
    return machine.run_tool(["git", *safe, *arguments], timeout_seconds=_TOOL_SECONDS)


def _changes(machine: Machine, source: Path) -> str:
    """`+changes`, `+unknown` where git cannot say, else nothing.

    Single files at the top of the work tree that git does not track, such as a flagperf.toml, are no change of code.
    An untracked folder may hold a case, so it counts.
    """
    status = _git(machine, source, "status", "--porcelain", "--untracked-files=normal")
    if not status.ok:
        return "+unknown"
    for line in status.stdout.splitlines():
        is_file_at_the_top = "/" not in line[3:]
        if not (line.startswith("??") and is_file_at_the_top):
            return "+changes"
    return ""


class _VcsInfo(msgspec.Struct):
    commit_id: str = ""


class _DirectUrl(msgspec.Struct):
    """The part of PEP 610's direct_url.json that is of use here; its URL may hold credentials and is not read."""

    vcs_info: _VcsInfo | None = None


def _installed_commit(source: Path) -> str | None:
    try:
        installed = metadata.distribution("flagperf")
    except metadata.PackageNotFoundError:
        return None
    if Path(str(installed.locate_file("flagperf"))).resolve() != source.resolve():
        return None
    try:
        origin = msgspec.json.decode(installed.read_text("direct_url.json") or "{}", type=_DirectUrl)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    commit = origin.vcs_info.commit_id if origin.vcs_info else ""
    return commit if _is_commit(commit) else None


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40,64}", text) is not None


def _os(machine: Machine) -> Fact:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        named = re.search(r"^PRETTY_NAME=(.+)$", machine.read(path) or "", re.MULTILINE)
        if named:
            return Fact(_unquoted(named[1]))
    return absent_fact("environment.no_os_name")


def _unquoted(text: str) -> str:
    try:
        return " ".join(shlex.split(text))
    except ValueError:
        return text.strip("\"' ")


def _kernel(machine: Machine) -> Fact:
    release = machine.read("/proc/sys/kernel/osrelease")
    return Fact(release) if release else absent_fact("environment.unreadable", path="/proc/sys/kernel/osrelease")


def _container(machine: Machine) -> Fact:
    """The kind of container; `none` only where process 1 is an init system and there is no sign of a container."""
    kind = _container_kind(machine)
    if kind:
        return Fact(kind)
    first_process = machine.read("/proc/1/comm")
    if first_process in _INIT_SYSTEMS:
        return Fact("none")
    if first_process:
        return absent_fact("environment.no_init_system", name=repr(first_process))
    return absent_fact("environment.no_first_process")


def _container_kind(machine: Machine) -> str | None:
    if "KUBERNETES_SERVICE_HOST" in machine.environ:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in machine.environ or "SINGULARITY_CONTAINER" in machine.environ:
        return "apptainer"
    if machine.glob("/run/.containerenv"):
        return "podman"
    if machine.glob("/.dockerenv"):
        return "docker"
    first_environ = re.search(r"(?:^|\x00)container=([^\x00]+)", machine.read("/proc/1/environ") or "")
    declared = machine.read("/run/systemd/container") or (first_environ[1] if first_environ else "")
    if re.fullmatch(r"[\w.-]{1,40}", declared):
        return declared
    groups = machine.read("/proc/1/cgroup") or ""
    return next((kind for hint, kind in _CGROUP_HINTS.items() if hint in groups), None)


def _docker(machine: Machine) -> Fact:
    output = machine.run_tool(["docker", "--version"], timeout_seconds=_TOOL_SECONDS)
    if not output.ok:
        return absent_fact("environment.tool_failed", why=_problem("docker", output))
    version = re.search(r"Docker version (\d[^\s,]*)", output.stdout)
    if version is None:
        # podman's stand-in for docker answers with its own name.
        return absent_fact("environment.no_docker_version", words=repr(_first_line(output.stdout)))
    return Fact(version[1])


def _framework() -> Fact:
    version = _version("torch")
    if version is not None:
        return Fact(f"torch {version}")
    python = sys.executable or "this Python"
    if PathFinder.find_spec("torch") is not None:
        return absent_fact("environment.torch_without_metadata", python=python)
    return absent_fact("environment.no_torch", python=python)


def _version(distribution: str) -> str | None:
    if not distribution:
        return None  # Python 3.10 would take the first distribution it finds; later ones raise.
    try:
        # None, against its annotation, where the metadata file is missing or broken.
        return metadata.version(distribution) or None
    except (metadata.PackageNotFoundError, KeyError):
        return None


def _variables(environ: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    return {name: _shown(name, environ[name]) for name in (*RESULT_VARIABLES, *extra) if name in environ}


def _shown(name: str, value: str) -> str:
    """A secret is shown as set, without its value."""
    is_secret = not _SECRET_WORDS.isdisjoint(name.upper().split("_")) or _SECRET_VALUE.search(value)
    return "(redacted)" if is_secret else value


def _problem(tool: str, output: CommandOutput) -> Message:
    if os.strerror(errno.ENOENT) in output.problem:
        return message("tool.not_found", tool=tool)
    if output.problem:
        return message("tool.words", words=output.problem)
    said = _first_line(output.stderr)
    if said:
        return message("tool.said", tool=tool, words=said)
    return message("tool.ended", tool=tool, code=output.returncode)


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:200]


# Tests without cards: FLAGPERF_SIMULATE=1, read by the agent alone.
#
# The adapter's code is the real one. It reads a machine laid out in the folder FLAGPERF_SIMULATE_ROOT, runs the tools
# and loads the libraries that the test put on PATH and LD_LIBRARY_PATH, and the worker computes on a torch device for
# tests. All output of such a run is marked as simulated.


SIMULATE = "FLAGPERF_SIMULATE"

ROOT = "FLAGPERF_SIMULATE_ROOT"


def is_simulated() -> bool:
    value = os.environ.get(SIMULATE, "")
    if value not in ("", "0", "1"):
        raise BadInput(f"{SIMULATE}={value!r}: use 1 to simulate cards, 0 or nothing not to")
    return value == "1"


def node_machine() -> Machine:
    """This machine as adapters see it."""
    if not is_simulated():
        return Machine()
    root = Path(os.environ.get(ROOT, "/"))
    if not is_folder(root):
        raise BadInput(f"{ROOT}={root} is not a folder")
    return Machine(root=root)

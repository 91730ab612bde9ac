"""What a node is and runs on apart from its cards: machine, CPUs, network, software, variables that change results; and
the simulated machine of tests.

Nothing here raises, guesses, uses the network or imports torch. Hardware is read from the kernel's own files. A fact
that cannot be found is absent, with the reason.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
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

_PLACEHOLDERS = frozenset({
    "", "-", "0", "default string", "empty", "invalid", "n/a", "none", "not applicable", "not specified", "o.e.m.",
    "oem", "product name", "system manufacturer", "system name", "system product name", "system vendor",
    "undefined", "unknown",
})  # fmt: skip
"""What firmware holds where the maker of the board left the field as it was; compared in lower case."""


def machine_model(machine: Machine) -> Fact:
    """Return maker and product by DMI, or the device tree's model where there is no usable DMI, as on ARM boards."""
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
    """Return `2 x AMD EPYC 7742 64-Core Processor (128 cores)`, or with the number of logical CPUs where the
    cores are not told apart."""
    blocks = [_fields(block) for block in re.split(r"\n\s*\n", machine.read("/proc/cpuinfo") or "")]
    cpus = [block for block in blocks if not _is_placeholder(block.get("model name", ""))]
    if not cpus:
        return _cpu_by_lscpu(machine)
    sockets = {cpu.get("physical id", ""): cpu for cpu in cpus}
    per_socket = [_number(cpu.get("cpu cores")) for cpu in sockets.values()]
    if "" in sockets or not all(per_socket):
        return Fact(f"{' + '.join(_unique(cpu['model name'] for cpu in cpus))} ({_count(len(cpus), 'logical CPU')})")
    models = Counter(cpu["model name"] for cpu in sockets.values())
    num_cores = sum(filter(None, per_socket))
    return Fact(f"{' + '.join(_times(num, model) for model, num in models.items())} ({_count(num_cores, 'core')})")


def network_links(machine: Machine) -> Fact:
    """Return the active InfiniBand or RoCE ports, or the fastest physical Ethernet interfaces where there are none."""
    fabric, fabric_problems = _fabric_ports(machine)
    if fabric:
        return Fact(_describe_links(fabric))
    ethernet, down, unknown = _ethernet_ports(machine)
    if ethernet and not unknown:
        fastest = max(link.gigabits for link in ethernet)
        return Fact(_describe_links([link for link in ethernet if link.gigabits == fastest]))
    problems = [*fabric_problems, *unknown, *down]
    return absent_fact("environment.links", links=problems) if problems else absent_fact("environment.no_interface")


def _fields(text: str) -> dict[str, str]:
    """Return the values by their keys in lower case: some architectures write `Model Name`."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip().lower(): _one_line(value) for key, colon, value in pairs if colon}


def _cpu_by_lscpu(machine: Machine) -> Fact:
    """Ask lscpu, which knows the names of the part numbers that ARM kernels give."""
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
    """Return the active RDMA ports, and what is wrong with the others. An adapter without `device` is emulated in
    software."""
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
            layer = machine.read(f"{port}/link_layer")
            kind = "InfiniBand" if layer == "InfiniBand" else "RDMA"
            if layer == "Ethernet":
                node_type = machine.read(f"/sys/class/infiniband/{adapter}/node_type") or ""
                kind = "iWARP" if "RNIC" in node_type else "RoCE"
            links.append(_Link(kind, float(rate[1]), is_virtual))
    return _one_per_wire(links), problems


def _ethernet_ports(machine: Machine) -> tuple[list[_Link], list[Message], list[Message]]:
    """Return the interfaces of known speed, those that are down, and those that are up at an unknown speed. One of the
    last could be the fastest, so the fastest is then unknown."""
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
        elif speed is None:
            unknown.append(message("environment.speed_unreadable", name=name))
        else:
            unknown.append(message("environment.speed", name=name, speed=repr(speed)))
    return _one_per_wire(links), down, unknown


def _one_per_wire(links: list[_Link]) -> list[_Link]:
    return [link for link in links if not link.is_virtual_function] or links


def _describe_links(links: Sequence[_Link]) -> str:
    """Return `InfiniBand, 2 x 200 Gb/s`, the fastest kind first."""
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
    """Return the facts of a node, the versions of `packages` and the variables that change results: RESULT_VARIABLES
    and the `extra_variables` that adapters name. A secret is shown as set, without its value."""
    release = machine.read("/proc/sys/kernel/osrelease")
    unreadable = absent_fact("environment.unreadable", path="/proc/sys/kernel/osrelease")
    torch = _version("torch")
    is_torch_there = PathFinder.find_spec("torch") is not None
    why_none = "environment.torch_without_metadata" if is_torch_there else "environment.no_torch"
    facts = {
        "machine": machine_model(machine),
        "cpu": cpu_model(machine),
        "network": network_links(machine),
        "os": _os(machine),
        "kernel": Fact(release) if release else unreadable,
        "container": _container(machine),
        "docker": _docker(machine),
        "driver": absent_fact("environment.no_driver"),
        "framework": Fact(f"torch {torch}") if torch else absent_fact(why_none, python=sys.executable or "this Python"),
        "python": Fact(f"{platform.python_implementation()} {platform.python_version()}"),
        "commit": source_commit(machine, Path(__file__).resolve().parent.parent),
    }
    versions = {name: version for name in packages if (version := _version(name)) is not None}
    variables = {
        name: machine.environ[name] for name in (*RESULT_VARIABLES, *extra_variables) if name in machine.environ
    }
    for name, value in variables.items():
        if not _SECRET_WORDS.isdisjoint(name.upper().split("_")) or _SECRET_VALUE.search(value):
            variables[name] = "(redacted)"
    return Environment(facts, versions, variables)


def source_commit(machine: Machine, source: Path) -> Fact:
    """Return the commit of the package at `source`: of the work tree that tracks it, else of what pip installed. It
    ends in `+changes` for a changed work tree, in `+unknown` where git cannot say."""

    def git(*arguments: str) -> CommandOutput:
        """Take no lock in the work tree and start no monitor that its configuration may name."""
        safe = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(source))
        return machine.run_tool(["git", *safe, *arguments], timeout_seconds=_TOOL_SECONDS)

    # Tracked: a project that merely has the virtual environment in it has another commit.
    tracked = git("ls-files", "--error-unmatch", "--", "__init__.py")
    if not tracked.ok:
        installed = _installed_commit(source)
        if installed is not None:
            return Fact(installed)
        return absent_fact("environment.not_tracked", path=str(source), why=_problem("git", tracked))
    head = git("rev-parse", "--verify", "HEAD")
    if not head.ok or not _is_commit(head.stdout.strip()):
        return absent_fact("environment.no_commit", path=str(source), why=_problem("git", head))
    status = git("status", "--porcelain", "--untracked-files=normal")
    # Single files at the top of the work tree that git does not track, such as a flagperf.toml, do not change code. An
    # untracked folder may hold a case, so it counts.
    changed = [line for line in status.stdout.splitlines() if not line.startswith("??") or "/" in line[3:]]
    return Fact(head.stdout.strip() + ("+unknown" if not status.ok else "+changes" if changed else ""))


class _VcsInfo(msgspec.Struct):
    commit_id: str = ""


class _DirectUrl(msgspec.Struct):
    """The used part of PEP 610's direct_url.json. Its URL is not read: it may hold credentials."""

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
            try:
                return Fact(" ".join(shlex.split(named[1])))
            except ValueError:
                return Fact(named[1].strip("\"' "))
    return absent_fact("environment.no_os_name")


def _container(machine: Machine) -> Fact:
    """Return the kind of container, or `none` where process 1 is an init system and there is no sign of a container."""
    if "KUBERNETES_SERVICE_HOST" in machine.environ:
        return Fact("kubernetes")
    if "APPTAINER_CONTAINER" in machine.environ or "SINGULARITY_CONTAINER" in machine.environ:
        return Fact("apptainer")
    if machine.glob("/run/.containerenv"):
        return Fact("podman")
    if machine.glob("/.dockerenv"):
        return Fact("docker")
    first_environ = re.search(r"(?:^|\x00)container=([^\x00]+)", machine.read("/proc/1/environ") or "")
    declared = machine.read("/run/systemd/container") or (first_environ[1] if first_environ else "")
    if re.fullmatch(r"[\w.-]{1,40}", declared):
        return Fact(declared)
    groups = machine.read("/proc/1/cgroup") or ""
    for hint, kind in _CGROUP_HINTS.items():
        if hint in groups:
            return Fact(kind)
    first_process = machine.read("/proc/1/comm")
    if first_process in _INIT_SYSTEMS:
        return Fact("none")
    if first_process:
        return absent_fact("environment.no_init_system", name=repr(first_process))
    return absent_fact("environment.no_first_process")


def _docker(machine: Machine) -> Fact:
    output = machine.run_tool(["docker", "--version"], timeout_seconds=_TOOL_SECONDS)
    if not output.ok:
        return absent_fact("environment.tool_failed", why=_problem("docker", output))
    version = re.search(r"Docker version (\d[^\s,]*)", output.stdout)
    if version is None:
        # podman's stand-in for docker answers with its own name.
        return absent_fact("environment.no_docker_version", words=repr(_first_line(output.stdout)))
    return Fact(version[1])


def _version(distribution: str) -> str | None:
    if not distribution:
        return None  # Python 3.10 would take the first distribution it finds; later ones raise.
    try:
        # None, against its annotation, where the metadata file is missing or broken.
        return metadata.version(distribution) or None
    except (metadata.PackageNotFoundError, KeyError):
        return None


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


# Tests without cards: FLAGPERF_SIMULATE=1, read by the agent alone. The adapter's code is the real one. It reads a
# machine laid out in the folder FLAGPERF_SIMULATE_ROOT, runs the tools and loads the libraries that the test put on
# PATH and LD_LIBRARY_PATH, and the worker computes on a torch device for tests. All output of such a run is marked as
# simulated.
SIMULATE = "FLAGPERF_SIMULATE"
ROOT = "FLAGPERF_SIMULATE_ROOT"


def is_simulated() -> bool:
    value = os.environ.get(SIMULATE, "")
    if value not in ("", "0", "1"):
        raise BadInput(f"{SIMULATE}={value!r}: use 1 to simulate cards, 0 or nothing not to")
    return value == "1"


def node_machine() -> Machine:
    """Return this machine as adapters see it."""
    if not is_simulated():
        return Machine()
    root = Path(os.environ.get(ROOT, "/"))
    if not is_folder(root):
        raise BadInput(f"{ROOT}={root} is not a folder")
    return Machine(root=root)

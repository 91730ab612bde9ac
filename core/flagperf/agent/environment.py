"""What a node runs on, captured by its agent: hardware without the cards, software, and variables that change results.

Nothing here raises, guesses, uses the network or imports torch. A fact that cannot be found is absent, with the reason.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from flagperf.agent.hardware import cpu_model, machine_model, network_links
from flagperf.api import CommandOutput, Machine
from flagperf.messages import Message, message
from flagperf.spec import Environment, Fact, absent_fact

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

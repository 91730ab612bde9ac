"""The command that runs an agent in a container image. It is a prefix of the agent's own command, so that it goes with
every cluster.

Nothing is privileged, only what the user names is writable, and the channel is stdin and stdout, without a terminal.
The agent is the container's first process: it has a handler for SIGTERM, and when it ends, the kernel ends all others.
"""

from __future__ import annotations

import csv
import fnmatch
import io
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from flagperf.api import ContainerNeeds
from flagperf.errors import BadInput, FlagPerfError, NodeFailed, PluginFailed, UnknownLayout, unknown_name
from flagperf.fleet.channel import node_name
from flagperf.fleet.fleet import Fleet
from flagperf.text import visible
from flagperf.units import exit_status

ENGINES = ("podman", "docker", "apptainer", "pyxis")


class Container(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An image, and how it is run."""

    image: str
    """What the engine calls it: a name, or for apptainer and pyxis also a file."""
    engine: Literal["podman", "docker", "apptainer", "pyxis"] = "podman"
    """What runs it on the nodes. pyxis is an option of Slurm's srun, the others are commands."""
    python: str = "python3"
    """The image's Python that has flagperf."""
    shm_size: str = ""
    """A /dev/shm of the container's own, such as `64g`. Empty: the host's, with its size."""
    mounts: tuple[str, ...] = ()
    """`/path`, `/path:/in/the/container`, or with `:rw` at the end; read-only otherwise."""
    engine_arguments: tuple[str, ...] = ()
    """The engine's own, before `run` or `exec`: `["--runtime", "runc"]`."""
    arguments: tuple[str, ...] = ()
    """Of `run` or `exec`, after all others: of two that say the same, engines take the last."""


class Mount(msgspec.Struct, frozen=True):
    """A folder or file of the node that a container sees."""

    source: str
    target: str
    is_writable: bool = False

    @property
    def mode(self) -> str:
        return "rw" if self.is_writable else "ro"

    @property
    def with_colons(self) -> str:
        return f"{self.source}:{self.target}:{self.mode}"

    @property
    def with_commas(self) -> str:
        """In the CSV of docker and apptainer, which carries every character."""
        row = ["type=bind", f"source={self.source}", f"target={self.target}", *["readonly"] * (not self.is_writable)]
        written = io.StringIO()
        csv.writer(written, lineterminator="").writerow(row)
        return written.getvalue()


class Start(msgspec.Struct, frozen=True):
    """What an engine has to be told."""

    container: Container
    needs: ContainerNeeds
    mounts: tuple[Mount, ...]
    mount_patterns: tuple[str, ...]
    name: str
    variables: tuple[str, ...]


RDMA_DEVICES = "/dev/infiniband*"
"""Without these, collectives of several nodes would quietly go over TCP."""

ON_THE_NODE = (
    "IFS=; n=$#; while [ $n -gt 0 ]; do n=$((n-1)); w=$1; shift; case $w in "
    '@--device=*) for p in ${w#*=}; do [ -e "$p" ] && set -- "$@" "--device=$p"; done;; '
    '@--*=*) o=${w%%=*}; for p in ${w#*=}; do [ -e "$p" ] && set -- "$@" "${o#@}=$p:$p:ro"; done;; '
    '@group=*) g=$(getent group "${w#*=}" | cut -d: -f3); [ "$g" ] && set -- "$@" "--group-add=$g";; '
    '@user) set -- "$@" "--user=$(id -u):$(id -g)";; '
    '*) set -- "$@" "$w";; esac; done; exec "$@"'
)
"""What only the node knows is filled in there, by any POSIX shell, because flagperf may be in the image alone: patterns
become the files that exist, groups and the user become numbers. Every value is a parameter, never text of the script;
words that begin with `@` are ours alone. It has neither line ends nor `!`, which some login shells change in quotes."""


def container_command(
    container: Container,
    needs: ContainerNeeds,
    data_dir: str | None,
    command: Sequence[str],
    *,
    name: str,
    variables: Iterable[str] = (),
) -> list[str]:
    """What runs `command` in a container of its own, as an argument list for the node. For pyxis it begins with options
    of srun.

    The data folder is read-only, at its own path. `name` is the container's, one for each agent. `variables` enter the
    container if they are set on the node, such as those that say which cards a scheduler gave.
    """
    check_needs(needs)
    _check(container)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise BadInput(f"{name!r} cannot be a container's name: use letters, digits, `.`, `_` and `-`")
    mounts = _mounts(container, needs, data_dir)
    patterns = tuple(path for path in needs.mounts if _is_pattern(path) and not _is_mounted(path, mounts))
    start = Start(container, needs, mounts, patterns, name, tuple(variables))
    words = [*_OPTIONS[container.engine](start), *command]
    if any(word.startswith("@") for word in words):
        return ["sh", "-c", ON_THE_NODE, "flagperf", *words]
    return words


def check_needs(needs: ContainerNeeds) -> None:
    """Raises PluginFailed for what no engine could be told."""
    for device in needs.devices:
        if not _is_cdi_name(device) and (not _is_absolute(device) or ":" in device):
            raise PluginFailed(
                f"container_needs() names the device {device!r}: give an absolute path or a CDI name, vendor/class=name"
            )
    for path in needs.mounts:
        if not _is_absolute(path) or ":" in path:
            raise PluginFailed(f"container_needs() names the mount {path!r}: give an absolute path without a colon")
    for group in needs.groups:
        if not re.fullmatch(r"[a-z_][\w-]*", group, re.ASCII):
            raise PluginFailed(f"container_needs() names the group {group!r}, which is not the name of a group")
    for option in (*needs.security_options, *needs.apptainer_options):
        if not option or option.startswith("@") or visible(option) != option:
            raise PluginFailed(f"container_needs() gives the option {option!r}, which is not one")


class ContainerImage(msgspec.Struct, frozen=True):
    """Which image it was, whatever its name means later."""

    id: str
    """`sha256:` and 64 digits: of its configuration, or of the file that holds it."""
    digests: tuple[str, ...] = ()
    """`name@sha256:...`, by which registries know it. Empty for an image that was made on the node."""


def image_question(container: Container) -> list[str]:
    """The command that asks a node for the image's identity, once the agent runs: before, the image may have to be
    pulled. Empty where nobody can tell: apptainer and pyxis know only files by more than a name."""
    if container.engine in ("podman", "docker"):
        template = "{{.Id}}{{range .RepoDigests}} {{.}}{{end}}"
        return [*_engine(container), "image", "inspect", f"--format={template}", container.image]
    return ["sha256sum", "--", container.image] if container.image.startswith("/") else []


def read_image(container: Container, answer: str) -> ContainerImage:
    """From what that command printed. Raises UnknownLayout."""
    if container.engine in ("podman", "docker"):
        found = re.fullmatch(rf"(?:sha256:)?({_SHA256})((?: [^ @]+@sha256:{_SHA256})*) *\n?", answer)
        digests = tuple(found[2].split()) if found else ()
    else:
        found, digests = re.fullmatch(rf"\\?({_SHA256}) [ *][^\n]+\n?", answer), ()
    if not found:
        raise UnknownLayout(f"{container.engine} was asked for the image {container.image}", answer)
    return ContainerImage(f"sha256:{found[1]}", digests)


_SHA256 = "[0-9a-f]{64}"

# --- the engines ----------------------------------------------------------------------------------------------------


def _podman(start: Start) -> list[str]:
    return [
        *_run(start),
        # Root of the container is the user who starts it: root only if that is root. keep-id would do the same with
        # the user's own number, and copy all of the image when it first runs.
        "--user=0:0",
        *["--group-add=keep-groups"] * bool(start.needs.groups),  # by number; names are those of the image
        *(f"--volume={mount.with_colons}" for mount in start.mounts),  # --mount: quotes differ by version
        *_ending(start),
    ]


def _docker(start: Start) -> list[str]:
    return [
        *_run(start),
        "@user",
        # The image does not know this user: programs that ask for a name or write to the home folder would fail.
        "--env=USER=flagperf",
        "--env=HOME=/tmp",
        "--ulimit=memlock=-1:-1",  # for RDMA. In podman a user's own limits hold, which nobody but root can raise
        *(f"@group={group}" for group in start.needs.groups),
        *(f"--mount={mount.with_commas}" for mount in start.mounts),  # --volume makes missing folders
        *_ending(start),
    ]


def _run(start: Start) -> list[str]:
    """What podman and docker have in common."""
    shared_memory = f"--shm-size={start.container.shm_size}" if start.container.shm_size else "--ipc=host"
    security = ("label=disable", "no-new-privileges", *start.needs.security_options)
    return [
        *_engine(start.container),
        "run",
        "--rm",
        "--interactive",
        f"--name={start.name}",
        "--network=host",
        shared_memory,
        "--pids-limit=-1",  # podman's 2048 are fewer than the threads of eight workers
        "--log-driver=none",  # otherwise all that goes over stdout is also kept on the node's disk
        "--entrypoint=",  # the agent itself gets the signals
        *(f"--security-opt={option}" for option in security),  # SELinux keeps containers from what is mounted
        *(f"--env={name}" for name in start.variables),
    ]


def _ending(start: Start) -> list[str]:
    devices = (*start.needs.devices, RDMA_DEVICES) if start.needs.devices else ()
    return [
        *(f"{'@' * _is_pattern(device)}--device={device}" for device in devices),
        *(f"@--volume={pattern}" for pattern in start.mount_patterns),
        *start.container.arguments,
        start.container.image,
    ]


def _apptainer(start: Start) -> list[str]:
    """The user, the network, the shared memory, the devices and the environment are the node's anyway."""
    return [
        *_engine(start.container),
        "exec",
        *start.needs.apptainer_options,
        *(f"--mount={mount.with_commas}" for mount in start.mounts),
        *(f"@--bind={pattern}" for pattern in start.mount_patterns),
        *start.container.arguments,
        start.container.image,
    ]


def _pyxis(start: Start) -> list[str]:
    """As apptainer. srun takes these options before the command; it runs where no node is, so nothing is filled in."""
    if start.mount_patterns:
        raise BadInput(
            f"pyxis cannot mount {start.mount_patterns[0]}, of which only a node knows what it stands for: "
            f"use another container engine"
        )
    mounts = ",".join(mount.with_colons for mount in start.mounts)
    return [
        f"--container-image={start.container.image}",
        *[f"--container-mounts={mounts}"] * bool(mounts),
        *start.container.arguments,
    ]


_OPTIONS: dict[str, Callable[[Start], list[str]]] = {
    "podman": _podman,
    "docker": _docker,
    "apptainer": _apptainer,
    "pyxis": _pyxis,
}


def _engine(container: Container) -> list[str]:
    return [container.engine, *container.engine_arguments]


# --- mounts ---------------------------------------------------------------------------------------------------------


def _mounts(container: Container, needs: ContainerNeeds, data_dir: str | None) -> tuple[Mount, ...]:
    """One for each place in the container; the user's own win."""
    of_launcher = [Mount(path, path) for path in needs.mounts if not _is_pattern(path)]
    of_data = [Mount(data_dir, data_dir)] if data_dir else []
    of_user = [_read_mount(text) for text in container.mounts]
    mounts = {mount.target: mount for mount in (*of_launcher, *of_data, *of_user)}
    for mount in mounts.values():
        _check_mount(mount, container.engine)
    return tuple(mounts.values())


def _is_mounted(pattern: str, mounts: Iterable[Mount]) -> bool:
    return any(fnmatch.fnmatchcase(mount.target, pattern) for mount in mounts)


def _read_mount(text: str) -> Mount:
    source, *others = text.split(":")
    mode = others.pop() if others and others[-1] in ("ro", "rw") else "ro"
    if len(others) > 1:
        raise BadInput(f"the container's mount {text!r} has too many parts: write /path:/in/the/container:ro (or :rw)")
    return Mount(source, others[0] if others else source, mode == "rw")


def _check_mount(mount: Mount, engine: str) -> None:
    separators = {"podman": ":", "pyxis": ":,"}.get(engine, "")
    for path in (mount.source, mount.target):
        if not _is_absolute(path):
            raise BadInput(f"{path!r} cannot be mounted into a container: give an absolute path of the node")
        if found := [letter for letter in separators if letter in path]:
            raise BadInput(f"{path!r} cannot be mounted by {engine}, to which {found[0]!r} separates paths: rename it")


# --- bad input ------------------------------------------------------------------------------------------------------


def _check(container: Container) -> None:
    if container.engine not in _OPTIONS:
        raise unknown_name("container engine", container.engine, _OPTIONS)
    if not re.fullmatch(r"[^\s@-]\S*", container.image) or visible(container.image) != container.image:
        raise BadInput(
            f"{container.image!r} is not a container image: give its name, without spaces and leading - or @"
        )
    if container.shm_size and container.engine not in ("podman", "docker"):
        raise BadInput(
            f"shm_size is not for {container.engine}, whose containers have the node's /dev/shm: leave it out"
        )
    if container.shm_size and not re.fullmatch(r"[1-9][0-9]*([kmgt]i?b?|b)?", container.shm_size, re.IGNORECASE):
        raise BadInput(f"the container's shm_size {container.shm_size!r} is not a size: write 64g or 512m")
    if container.engine_arguments and container.engine == "pyxis":
        raise BadInput("engine_arguments are not for pyxis, which has no command: give srun's to the cluster")
    if not container.python or container.python[0] in "-@" or visible(container.python) != container.python:
        raise BadInput(
            f"the container's python {container.python!r} is not a command: give a name or a path of the image"
        )
    for argument in (*container.engine_arguments, *container.arguments):
        _check_argument(argument)


def _check_argument(argument: str) -> None:
    if not argument or argument.startswith("@") or visible(argument) != argument:
        raise BadInput(
            f"the container's argument {argument!r} is not one: it is empty, or begins with @ or has controls"
        )
    if re.fullmatch(r"--privileged(=true)?", argument):
        raise BadInput(
            f"the container's argument {argument!r} would give it the whole machine; containers here are never "
            f"privileged: name the devices, groups and capabilities that it needs"
        )
    if re.fullmatch(r"-[itd]*[td][itd]*|--(tty|detach)(=true)?", argument):
        raise BadInput(
            f"the container's argument {argument!r} would cut off the agent, which speaks over stdin and stdout "
            f"without a terminal: leave it out"
        )


def _is_pattern(path: str) -> bool:
    return path.startswith("/") and any(letter in path for letter in "*?[")


def _is_cdi_name(device: str) -> bool:
    return re.fullmatch(r"[A-Za-z][\w.-]*/[A-Za-z][\w-]+=[\w.:-]+", device, re.ASCII) is not None


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and visible(path) == path


# What a short command prints on each node, outside of containers and without an agent.


def outputs(fleet: Fleet, command: Sequence[str], timeout_seconds: float) -> dict[int, str | NodeFailed]:
    found: dict[int, str | NodeFailed] = {}
    at_once = max(1, fleet.allocation.max_starts)
    for first in range(0, len(fleet.nodes), at_once):
        indexes = range(first, min(first + at_once, len(fleet.nodes)))
        started = {index: _start(fleet, index, command) for index in indexes}
        deadline = time.monotonic() + timeout_seconds
        for index, process in started.items():
            if isinstance(process, NodeFailed):
                found[index] = process
            else:
                found[index] = _output(fleet, index, process, max(0.1, deadline - time.monotonic()))
    return found


def _start(fleet: Fleet, index: int, command: Sequence[str]) -> subprocess.Popen[str] | NodeFailed:
    try:
        return subprocess.Popen(
            fleet.allocation.agent_command(fleet.nodes[index], list(command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, FlagPerfError) as error:
        return NodeFailed(f"{node_name(index, fleet.nodes[index])}: {error}")


def _output(fleet: Fleet, index: int, process: subprocess.Popen[str], seconds: float) -> str | NodeFailed:
    name = node_name(index, fleet.nodes[index])
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return NodeFailed(f"{name} did not answer within {seconds:.0f} s")
    if process.returncode:
        said = stderr.strip().splitlines()[-1:] or [exit_status(process.returncode)]
        return NodeFailed(f"{name}: {said[0]}")
    return stdout

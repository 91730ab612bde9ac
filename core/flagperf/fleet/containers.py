"""The command that runs an agent in a container image: a prefix of the agent's own command, which fits every cluster.

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
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from flagperf.api import ContainerNeeds
from flagperf.errors import BadInput, FlagPerfError, NodeFailed, PluginFailed, UnknownLayout, unknown_name
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
        """Return the mount in the CSV of docker and apptainer, which carries every character."""
        row = ["type=bind", f"source={self.source}", f"target={self.target}", *["readonly"] * (not self.is_writable)]
        written = io.StringIO()
        csv.writer(written, lineterminator="").writerow(row)
        return written.getvalue()


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
"""A script for any POSIX shell on the node, because flagperf may be in the image alone. It fills in what only the node
knows: patterns become the files that exist, groups and the user become numbers. Every value is a parameter, never text
of the script; words that begin with `@` are ours alone. It has neither line ends nor `!`: some login shells change them
in quotes."""


def container_command(
    container: Container,
    needs: ContainerNeeds,
    data_dir: str | None,
    command: Sequence[str],
    *,
    name: str,
    variables: Iterable[str] = (),
) -> list[str]:
    """Return the arguments that run `command` on the node in a container of its own. For pyxis they begin with options
    of srun.

    The data folder is mounted read-only, at its own path. `name` is the container's, one for each agent. `variables`
    enter the container if they are set on the node, such as those that say which cards a scheduler gave.
    """
    check_needs(needs)
    _check(container)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise BadInput(f"{name!r} cannot be a container's name: use letters, digits, `.`, `_` and `-`")
    mounts = _mounts(container, needs, data_dir)
    patterns = [
        path
        for path in needs.mounts
        if _is_pattern(path) and not any(fnmatch.fnmatchcase(mount.target, path) for mount in mounts)
    ]
    if container.engine == "pyxis":  # options of srun, which does not run on the node and can fill in nothing
        if patterns:
            raise BadInput(
                f"pyxis cannot mount {patterns[0]}, of which only a node knows what it stands for: "
                f"use another container engine"
            )
        joined = ",".join(mount.with_colons for mount in mounts)
        options = [f"--container-image={container.image}", *[f"--container-mounts={joined}"] * bool(joined)]
        return [*options, *container.arguments, *command]
    if container.engine == "apptainer":  # user, network, shared memory, devices and environment are the node's anyway
        options = ["exec", *needs.apptainer_options, *(f"--mount={mount.with_commas}" for mount in mounts)]
        options += [f"@--bind={pattern}" for pattern in patterns]
    else:
        options = _podman_or_docker_options(container, needs, mounts, name, variables)
        options += [f"@--volume={pattern}" for pattern in patterns]
    words = [*_engine(container), *options, *container.arguments, container.image, *command]
    if any(word.startswith("@") for word in words):
        return ["sh", "-c", ON_THE_NODE, "flagperf", *words]
    return words


def check_needs(needs: ContainerNeeds) -> None:
    """Raise PluginFailed for what no engine could be told."""
    for device in needs.devices:
        is_cdi_name = re.fullmatch(r"[A-Za-z][\w.-]*/[A-Za-z][\w-]+=[\w.:-]+", device, re.ASCII)
        if not is_cdi_name and (not _is_absolute(device) or ":" in device):
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
            raise PluginFailed(f"container_needs() gives the option {option!r}, which is not valid")


class ContainerImage(msgspec.Struct, frozen=True):
    """Which image it was, whatever its name means later."""

    id: str
    """`sha256:` and 64 digits: of its configuration, or of the file that holds it."""
    digests: tuple[str, ...] = ()
    """`name@sha256:...`, by which registries know it. Empty for an image that was made on the node."""


_SHA256 = "[0-9a-f]{64}"


def image_question(container: Container) -> list[str]:
    """Return the command that asks a node for the image's identity once the agent runs; before that, the image may have
    to be pulled. Return an empty list where nothing can tell: apptainer and pyxis know only files by more than a name.
    """
    if container.engine in ("podman", "docker"):
        template = "{{.Id}}{{range .RepoDigests}} {{.}}{{end}}"
        return [*_engine(container), "image", "inspect", f"--format={template}", container.image]
    return ["sha256sum", "--", container.image] if container.image.startswith("/") else []


def read_image(container: Container, answer: str) -> ContainerImage:
    """Read what the command of `image_question` printed. Raise UnknownLayout for anything else."""
    if container.engine in ("podman", "docker"):
        found = re.fullmatch(rf"(?:sha256:)?({_SHA256})((?: [^ @]+@sha256:{_SHA256})*) *\n?", answer)
        digests = tuple(found[2].split()) if found else ()
    else:
        found, digests = re.fullmatch(rf"\\?({_SHA256}) [ *][^\n]+\n?", answer), ()
    if not found:
        raise UnknownLayout(f"{container.engine} was asked for the image {container.image}", answer)
    return ContainerImage(f"sha256:{found[1]}", digests)


def _engine(container: Container) -> list[str]:
    return [container.engine, *container.engine_arguments]


def _podman_or_docker_options(
    container: Container, needs: ContainerNeeds, mounts: Sequence[Mount], name: str, variables: Iterable[str]
) -> list[str]:
    if container.engine == "podman":
        own = [
            # Root of the container is the user who starts it: root only if that is root. keep-id would do the same
            # with the user's own number, and copy all of the image when it first runs.
            "--user=0:0",
            *["--group-add=keep-groups"] * bool(needs.groups),  # by number; names are those of the image
            *(f"--volume={mount.with_colons}" for mount in mounts),  # --mount: quotes differ by version
        ]
    else:
        own = [
            "@user",
            # The image does not know this user: programs that ask for a name or write to the home folder would fail.
            "--env=USER=flagperf",
            "--env=HOME=/tmp",
            "--ulimit=memlock=-1:-1",  # for RDMA. In podman a user's own limits hold, which only root can raise
            *(f"@group={group}" for group in needs.groups),
            *(f"--mount={mount.with_commas}" for mount in mounts),  # --volume makes missing folders
        ]
    security = ("label=disable", "no-new-privileges", *needs.security_options)
    devices = (*needs.devices, RDMA_DEVICES) if needs.devices else ()
    return [
        "run",
        "--rm",
        "--interactive",
        f"--name={name}",
        "--network=host",
        f"--shm-size={container.shm_size}" if container.shm_size else "--ipc=host",
        "--pids-limit=-1",  # podman's 2048 are fewer than the threads of eight workers
        "--log-driver=none",  # otherwise all that goes over stdout is also kept on the node's disk
        "--entrypoint=",  # the agent itself gets the signals
        *(f"--security-opt={option}" for option in security),  # SELinux keeps containers from what is mounted
        *(f"--env={variable}" for variable in variables),
        *own,
        *(f"{'@' * _is_pattern(device)}--device={device}" for device in devices),
    ]


def _mounts(container: Container, needs: ContainerNeeds, data_dir: str | None) -> tuple[Mount, ...]:
    """Return one mount for each place in the container; the user's own win."""
    found = [Mount(path, path) for path in needs.mounts if not _is_pattern(path)]
    if data_dir:
        found.append(Mount(data_dir, data_dir))
    for text in container.mounts:
        source, *others = text.split(":")
        mode = others.pop() if others and others[-1] in ("ro", "rw") else "ro"
        if len(others) > 1:
            raise BadInput(
                f"the container's mount {text!r} has too many parts: write /path:/in/the/container:ro (or :rw)"
            )
        found.append(Mount(source, others[0] if others else source, mode == "rw"))
    mounts = {mount.target: mount for mount in found}
    separators = {"podman": ":", "pyxis": ":,"}.get(container.engine, "")
    for path in (path for mount in mounts.values() for path in (mount.source, mount.target)):
        if not _is_absolute(path):
            raise BadInput(f"{path!r} cannot be mounted into a container: give an absolute path of the node")
        if separator := next((letter for letter in separators if letter in path), ""):
            raise BadInput(
                f"{path!r} cannot be mounted by {container.engine}, to which {separator!r} separates paths: rename it"
            )
    return tuple(mounts.values())


def _check(container: Container) -> None:
    """Raise BadInput for what the engine would not take, or what would cut off the agent."""
    if container.engine not in ENGINES:
        raise unknown_name("container engine", container.engine, ENGINES)
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
        what = f"the container's argument {argument!r}"
        if not argument or argument.startswith("@") or visible(argument) != argument:
            raise BadInput(f"{what} is not valid: it is empty, begins with @ or has control characters")
        if re.fullmatch(r"--privileged(=true)?", argument):
            raise BadInput(
                f"{what} would give it the whole machine; containers here are never privileged: name the devices, "
                f"groups and capabilities that it needs"
            )
        if re.fullmatch(r"-[itd]*[td][itd]*|--(tty|detach)(=true)?", argument):
            raise BadInput(
                f"{what} would cut off the agent, which speaks over stdin and stdout without a terminal: leave it out"
            )


def _is_pattern(path: str) -> bool:
    return path.startswith("/") and any(letter in path for letter in "*?[")


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and visible(path) == path


def outputs(fleet: Fleet, command: Sequence[str], timeout_seconds: float) -> dict[int, str | NodeFailed]:
    """Return what a short command prints on each node, outside of containers and without an agent."""
    found: dict[int, str | NodeFailed] = {}
    at_once = max(1, fleet.allocation.max_starts)
    for first in range(0, len(fleet.nodes), at_once):
        started: dict[int, subprocess.Popen[str]] = {}
        for index in range(first, min(first + at_once, len(fleet.nodes))):
            try:
                started[index] = subprocess.Popen(
                    fleet.allocation.agent_command(fleet.nodes[index], list(command)),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
            except (OSError, FlagPerfError) as error:
                found[index] = NodeFailed(f"{fleet.name(index)}: {error}")
        deadline = time.monotonic() + timeout_seconds
        for index, process in started.items():
            seconds = max(0.1, deadline - time.monotonic())
            try:
                stdout, stderr = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                found[index] = NodeFailed(f"{fleet.name(index)} did not answer within {seconds:.0f} s")
                continue
            said = stderr.strip().splitlines()[-1:] or [exit_status(process.returncode)]
            found[index] = NodeFailed(f"{fleet.name(index)}: {said[0]}") if process.returncode else stdout
    return found

"""Nodes that are reached by OpenSSH: one connection for each, made by the user's own ssh.

User name, port, keys, jump hosts and known_hosts are what `ssh HOST` already uses. Host keys are always checked, and
nothing is ever asked for.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from flagperf.api import Allocation, Cluster, CommandOutput, Node, NoOptions
from flagperf.errors import BadInput, MissingPart
from flagperf.kit import run_tool

SHOWN_NAMES = 20

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


def first_names(names: Sequence[str], num_nodes: int, where: str) -> Sequence[str]:
    """Return as many of the names as are asked for. Raise BadInput if there are fewer; `where` says what has them."""
    if len(names) < num_nodes:
        listed = ", ".join([*names[:SHOWN_NAMES], *["..."] * (len(names) > SHOWN_NAMES)]) or "none"
        raise BadInput(f"{num_nodes} nodes are asked for, and {where} has {len(names)}: {listed}")
    return names[:num_nodes]


def check_options(cluster: str, options: msgspec.Struct) -> None:
    """Raise BadInput for control characters, which no option may have, whoever reads it later."""
    for name, value in msgspec.structs.asdict(options).items():
        for text in [value] if isinstance(value, str) else value if isinstance(value, tuple) else ():
            if CONTROL_CHARACTER.search(text):
                raise BadInput(f"option {name} of cluster {cluster}: {text!r} has a control character")


def check_python(cluster: str, python: str) -> None:
    """Raise BadInput for a path that does not mean the same wherever the command starts."""
    if python and not python.startswith("/") and ("/" in python or python.startswith(("-", "~"))):
        raise BadInput(
            f"option python of cluster {cluster}: {python!r} is neither an absolute path nor the name of a command"
        )


def check_installed(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise MissingPart(f"there is no {program} on PATH: {package}")


def last_words(output: CommandOutput) -> str:
    """Return why a command failed: its own last line."""
    lines = (output.problem or output.stderr or output.stdout).strip().splitlines()
    return lines[-1].strip() if lines else f"it ended with {output.returncode} and said nothing"


FIXED_SETTINGS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "NoHostAuthenticationForLocalhost": "no",
    # A connection that is cut is noticed after at most 20 s.
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "RemoteCommand": "none",
}
"""Given first: of several values of a setting ssh takes the first."""

NOT_TO_BE_SET = frozenset(
    {name.lower() for name in FIXED_SETTINGS}
    | {"connecttimeout", "forkafterauthentication", "host", "include", "knownhostscommand", "match", "requesttty"}
    | {"sessiontype", "stdinnull", "verifyhostkeydns"}
)

JUMP_HOST_STARTS = 8
"""By default sshd drops connections at random from ten on that have not logged in yet (MaxStartups 10:30:100). Of 60
at once through one host 22 were dropped, of 8 none."""


class SshOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    hosts: str = ""
    """Names as ssh knows them, in ClusterShell's notation: `node[01-16]`, `alpha,beta`. The first of them are used."""
    hosts_file: str = ""
    """In place of `hosts`: a file with such names, in one or several lines. `#` begins a comment."""
    python: str = ""
    """The Python that has flagperf on the hosts. Empty: the same path as here."""
    config: str = ""
    """A file that ssh reads in place of ~/.ssh/config and /etc/ssh/ssh_config."""
    connect_timeout: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 10
    """Seconds for each host."""
    max_starts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many connections may be opening at once. 0: 64, or 8 where a jump host stands before the hosts."""
    settings: tuple[str, ...] = ()
    """Further settings of ssh_config, each as `Name=value`, such as `ProxyJump=login1`. Those that could turn off the
    check of host keys are refused."""


class SshAllocation(Allocation):
    def __init__(self, nodes: Sequence[Node], ssh: Sequence[str], max_starts: int) -> None:
        self.nodes, self.max_starts, self._ssh = tuple(nodes), max_starts, ssh

    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        return [*self._ssh, "--", node.name, shlex.join(map(_carried, command))]


class SshCluster(Cluster):
    name = "ssh"
    options = SshOptions

    def allocate(self, num_nodes: int, options: SshOptions) -> Allocation:
        check_installed("ssh", "install the OpenSSH client")
        check_options(self.name, options)
        check_python(self.name, options.python)
        hosts = first_names(_hosts(options), num_nodes, "the list of hosts")
        nodes = [Node(host, _address(host), options.python) for host in hosts]
        ssh = _ssh(options)
        # `ssh -G` connects to nothing. It reads all settings, so that mistakes in them are found here.
        output = run_tool([*ssh, "-G", "--", hosts[0]])
        if not output.ok:
            raise BadInput(f"ssh cannot read its settings for {hosts[0]}: {last_words(output)}")
        jump = re.search(r"^(proxyjump|proxycommand) (?!none$)", output.stdout, re.MULTILINE)
        safe_starts = JUMP_HOST_STARTS if jump else SshAllocation.max_starts
        return SshAllocation(nodes, ssh, options.max_starts or safe_starts)

    def num_nodes(self, options: SshOptions) -> int:
        return max(1, len(_hosts(options)))


def _ssh(options: SshOptions) -> list[str]:
    """Return ssh with all that comes before the host."""
    for setting in options.settings:
        name, equals, _ = setting.partition("=")
        if not equals or not name.isalnum():
            raise BadInput(f"option settings of cluster ssh: {setting!r} is not of the form Name=value")
        if name.lower() in NOT_TO_BE_SET:
            raise BadInput(
                f"option settings of cluster ssh: {name} cannot be set, because flagperf relies on its value for the "
                "check of host keys or for its connection"
            )
    fixed = {**FIXED_SETTINGS, "ConnectTimeout": str(options.connect_timeout)}
    settings = [*(f"{name}={value}" for name, value in fixed.items()), *options.settings]
    config = ["-F", str(Path(options.config).absolute())] if options.config else []
    return ["ssh", "-T", *config, *(word for setting in settings for word in ("-o", setting))]


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ADDRESS = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
_BETWEEN_SETS = re.compile(r",(?![^\[]*\])")
_OPERATOR = re.compile(r"[!&^]")
_RANGE = re.compile(r"(?<=[\[,])(\d+)-(\d+)")

MAX_HOSTS = 100_000
"""ClusterShell makes every name of a range: a slip of the finger would take all memory."""


def _hosts(options: SshOptions) -> list[str]:
    if bool(options.hosts) == bool(options.hosts_file):
        what = "both hosts and hosts_file are" if options.hosts else "neither hosts nor hosts_file is"
        raise BadInput(
            f"cluster ssh: {what} given; name the hosts once, for example with --cluster-option hosts=node[01-16]"
        )
    if options.hosts:
        return list(dict.fromkeys(_names("option hosts of cluster ssh", options.hosts)))
    path = Path(options.hosts_file)
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"option hosts_file of cluster ssh: cannot read {path}: {error}") from None
    names: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        names.update(dict.fromkeys(_names(f"{path}, line {number}", line.partition("#")[0].strip())))
    return list(names)


def _names(where: str, text: str) -> Iterator[str]:
    """Yield the names in the order in which they are written, or in ClusterShell's for sets taken from others."""
    # Not at the top: it takes 30 ms, and other commands need none of it.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    too_many = BadInput(f"{where}: {text!r} names more than {MAX_HOSTS:,} hosts")
    if any(len(last) > 12 or int(last) - int(first) >= MAX_HOSTS for first, last in _RANGE.findall(text)):
        raise too_many
    try:
        for part in [text] if _OPERATOR.search(text) else _BETWEEN_SETS.split(text):
            names = NodeSet(part, resolver=RESOLVER_NOGROUP)
            if len(names) > MAX_HOSTS:
                raise too_many
            for name in names:
                if not _NAME.fullmatch(name) and not _address(name, with_scope=True):
                    raise BadInput(
                        f"{where}: {name!r} is not a host name; list names and IP addresses, and put user and port "
                        "into the configuration of ssh"
                    )
                yield name
    except NodeSetException as error:
        raise BadInput(f"{where}: {text!r} is not a list of hosts: {error}") from None


def _address(host: str, with_scope: bool = False) -> str:
    """Return the host if it is an IP address. One with a scope means something on this machine only."""
    if not _ADDRESS.fullmatch(host) or ("%" in host and not with_scope):
        return ""
    try:
        return host if ipaddress.ip_address(host) else ""
    except ValueError:
        return ""


_READ_DIFFERENTLY = re.compile(r"^[=%]|[!\\]")


def _carried(word: str) -> str:
    """Raise BadInput for a word that would not arrive as it is. sshd gives the command to the user's login shell, which
    may be any, quoted as for sh: csh looks for `!` in quotes and ends at a newline, fish reads a backslash there, and
    zsh and csh expand a word that begins with `=` or `%`."""
    if _READ_DIFFERENTLY.search(word) or CONTROL_CHARACTER.search(word):
        raise BadInput(
            f"cluster ssh cannot carry {word!r} to a host: login shells differ in what they make of `!`, `\\`, control "
            "characters, and a leading `=` or `%`; use another path or name"
        )
    return word


class LocalAllocation(Allocation):
    """The site of one machine: every node is this one."""

    nodes_share_host = True

    def __init__(self, num_nodes: int) -> None:
        self.nodes = tuple(Node("127.0.0.1", "127.0.0.1") for _ in range(num_nodes))

    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        return list(command)


class LocalCluster(Cluster):
    name = "local"

    def allocate(self, num_nodes: int, options: NoOptions) -> Allocation:
        return LocalAllocation(num_nodes)

"""Machines laid out in a temporary directory, one fact at a time; git repositories and distributions are real."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from flagperf.agent import node_environment
from flagperf.agent.node_environment import capture_environment, is_simulated, node_machine, source_commit
from flagperf.api import CommandOutput, Machine
from flagperf.errors import BadInput
from flagperf.spec.node_facts import ENVIRONMENT_FACTS, Environment, Fact
from flagperf.testing import MachineFolder

Given = dict[str, str | CommandOutput | None]
"""Files by their path, what tools print by `tool NAME`, variables by `$NAME`."""


class Node:
    def __init__(self, root: Path) -> None:
        self.folder, self.environ, self.tools = MachineFolder(root), dict[str, str](), dict[str, CommandOutput]()

    def give(self, given: Given) -> None:
        for name, what in given.items():
            if isinstance(what, CommandOutput):
                self.tools[name.removeprefix("tool ")] = what
            elif name.startswith("$"):
                self.environ[name[1:]] = what or ""
            elif what is not None:
                self.folder.file(name, what)

    def run_tool(self, argv: list[str], timeout_seconds: float = 10.0) -> CommandOutput:
        missing = CommandOutput(None, "", "", f"{argv[0]} could not be started: {os.strerror(errno.ENOENT)}")
        return self.tools.get(argv[0], missing)

    def machine(self) -> Machine:
        return self.folder.machine(self.environ, self.run_tool)

    def capture(self, packages: Sequence[str] = (), extra_variables: Sequence[str] = ()) -> Environment:
        return capture_environment(self.machine(), packages, extra_variables)

    def fact(self, name: str) -> Fact:
        return self.capture().facts[name]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "root")


def absent_reason(fact: Fact) -> str:
    assert fact.value is None and fact.how == "absent"
    assert fact.message is not None and str(fact.message) == fact.reason
    return fact.reason


# --- facts ------------------------------------------------------------------------------------------------------------


def dmi(maker: str, product: str) -> Given:
    return {"sys/class/dmi/id/sys_vendor": maker, "sys/class/dmi/id/product_name": product}


def cpuinfo(name: str, sockets: int, cores: int, threads: int = 1) -> str:
    block = "processor\t: {n}\nmodel name\t: {name}\nphysical id\t: {socket}\ncore id\t: {core}\ncpu cores\t: {cores}\n"
    places = [(s, c) for _ in range(threads) for s in range(sockets) for c in range(cores)]
    return "\n".join(block.format(n=n, name=name, socket=s, core=c, cores=cores) for n, (s, c) in enumerate(places))


def lscpu(printed: str, code: int = 0) -> Given:
    """An ARM machine, whose kernel gives part numbers alone."""
    arm = "processor\t: 0\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n"
    return {"proc/cpuinfo": arm, "tool lscpu": CommandOutput(code, printed, "")}


def docker(stdout: str, code: int | None = 0, stderr: str = "", problem: str = "") -> Given:
    return {"tool docker": CommandOutput(code, stdout, stderr, problem)}


def fabric(
    adapter: str, rate: str, layer: str = "InfiniBand", state: str = "4: ACTIVE", physical: bool = True
) -> Given:
    port = f"sys/class/infiniband/{adapter}/ports/1"
    files: Given = {f"{port}/rate": rate, f"{port}/link_layer": layer, f"{port}/state": state}
    return {**files, f"sys/class/infiniband/{adapter}/device/vendor": "0x15b3" if physical else None}


def virtual(adapter: str) -> Given:
    return {f"sys/class/infiniband/{adapter}/device/physfn/vendor": ""}


def ethernet(name: str, speed: str | None, state: str = "up", kind: str = "1", physical: bool = True) -> Given:
    interface = f"sys/class/net/{name}"
    files: Given = {f"{interface}/operstate": state, f"{interface}/type": kind, f"{interface}/speed": speed}
    return {**files, f"{interface}/device/vendor": "0x8086" if physical else None}


HDR, EDR = "200 Gb/sec (4X HDR)", "100 Gb/sec (4X EDR)"
MIXED = {name: text for index in range(1, 9) for name, text in fabric(f"mlx5_{index}", "400 Gb/sec (4X NDR)").items()}
ETHERNETS = {
    **ethernet("eno1", "1000"), **ethernet("ens1f0", "25000"), **ethernet("ens1f1", "25000"),
    **ethernet("ens2", "100000", state="down"), **ethernet("lo", "1000000", physical=False),
    **ethernet("docker0", "200000", physical=False), **ethernet("ib0", "200000", kind="32"),
}  # fmt: skip
FACTS: tuple[tuple[str, Given, str], ...] = (
    ("machine", dmi("Supermicro\n", "  SYS-420GP-TNR \n"), "Supermicro SYS-420GP-TNR"),
    ("machine", dmi("HPE", "HPE Cray XD670"), "HPE Cray XD670"),
    ("machine", dmi("To be filled by O.E.M.", "G292-Z20-00"), "G292-Z20-00"),
    ("machine", {"proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\x00"}, "Raspberry Pi 4 Model B Rev 1.4"),
    ("cpu", {"proc/cpuinfo": cpuinfo("AMD EPYC 7742", 2, 64, threads=2)}, "2 x AMD EPYC 7742 (128 cores)"),
    ("cpu", {"proc/cpuinfo": cpuinfo("Intel(R)     @ 2.20GHz", 1, 1)}, "Intel(R) @ 2.20GHz (1 core)"),
    ("cpu", {"proc/cpuinfo": cpuinfo("A", 1, 4) + "\nprocessor: 9\nmodel name: B\nphysical id: 1\ncpu cores: 8\n"},
     "A + B (12 cores)"),
    ("cpu", {"proc/cpuinfo": "processor: 0\nmodel name: S5000C/64\n\nprocessor: 1\nmodel name: S5000C/64\n"},
     "S5000C/64 (2 logical CPUs)"),
    ("cpu", lscpu("CPU(s):   128\nModel name:   Kunpeng-920\nCore(s) per socket:   64\nSocket(s):   2\n"),
     "2 x Kunpeng-920 (128 cores)"),
    ("cpu", lscpu("CPU(s):   96\n  Model name:   Neoverse-N1\n    Core(s) per cluster: 96\n    Socket(s):   -\n"),
     "Neoverse-N1 (96 logical CPUs)"),
    ("cpu", lscpu("CPU(s): 8\nModel name: Cortex-A55\nCore(s) per socket: 4\nSocket(s): 1\nModel name: Cortex-A76\n"),
     "Cortex-A55 + Cortex-A76 (8 logical CPUs)"),
    ("network", {**fabric("mlx5_0", HDR), **fabric("mlx5_1", HDR), **ethernet("eth0", "400000")},
     "InfiniBand, 2 x 200 Gb/s"),
    ("network", {**fabric("mlx5_0", EDR, "Ethernet"), **fabric("mlx5_1", HDR, "Ethernet", "1: DOWN")},
     "RoCE, 100 Gb/s"),
    ("network", {**fabric("mlx5_1", HDR, "Ethernet", "1: DOWN"), **ethernet("eth0", "25000")}, "Ethernet, 25 Gb/s"),
    ("network", {**fabric("mlx5_0", "25 Gb/sec (1X EDR)", "Ethernet"), **MIXED},
     "InfiniBand, 8 x 400 Gb/s; RoCE, 25 Gb/s"),
    ("network", {
        **fabric("irdma0", EDR, "Ethernet"), "sys/class/infiniband/irdma0/node_type": "4: RNIC",
        **fabric("rdmap0", EDR, "Unspecified"),
     }, "RDMA, 100 Gb/s; iWARP, 100 Gb/s"),
    ("network", {**fabric("mlx5_0", HDR), **fabric("mlx5_2", HDR), **virtual("mlx5_2")}, "InfiniBand, 200 Gb/s"),
    ("network", {**fabric("mlx5_2", HDR), **virtual("mlx5_2")}, "InfiniBand, 200 Gb/s"),
    ("network", ETHERNETS, "Ethernet, 2 x 25 Gb/s"),
    ("network", ethernet("eth0", "2500", state="unknown"), "Ethernet, 2.5 Gb/s"),
    ("network", {**ethernet("eth0", "1000"), **ethernet("wlan0", None), "sys/class/net/wlan0/phy80211/name": "phy0"},
     "Ethernet, 1 Gb/s"),
    ("os", {"etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.3 LTS"\n'}, "Ubuntu 22.04.3 LTS"),
    ("os", {"usr/lib/os-release": "PRETTY_NAME=Alpine\n"}, "Alpine"),
    ("os", {"usr/lib/os-release": 'PRETTY_NAME="broken\n'}, "broken"),
    ("kernel", {"proc/sys/kernel/osrelease": "5.15.0-91-generic\n"}, "5.15.0-91-generic"),
    ("docker", docker("Docker version 18.09.1-ce, build 4c52b90\n"), "18.09.1-ce"),
    ("container", {"proc/1/comm": "systemd\n", "proc/1/cgroup": "0::/init.scope\n"}, "none"),
    ("container", {".dockerenv": ""}, "docker"),
    ("container", {".dockerenv": "", "$KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    ("container", {".dockerenv": "", "$APPTAINER_CONTAINER": "/a.sif"}, "apptainer"),
    ("container", {"run/.containerenv": ""}, "podman"),
    ("container", {"run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
    ("container", {"proc/1/environ": "PATH=/bin\0container=lxc\0SECRET=x\0"}, "lxc"),
    ("container", {"proc/1/cgroup": "12:cpu:/kubepods/burstable/pod1/abc\n"}, "kubernetes"),
    ("container", {"proc/1/cgroup": "0::/machine.slice/libpod-123.scope\n"}, "podman"),
)  # fmt: skip
REASONS: tuple[tuple[str, Given, str], ...] = (
    ("machine", dmi("ASUSTeK", "To Be Filled By O.E.M. by More"), "placeholder 'To Be Filled By"),
    ("machine", dmi("ASUSTeK", " \n"), "placeholder ''"),
    ("cpu", {}, "no model name, and lscpu could not be started"),
    ("cpu", lscpu("", code=1), "no model name, and lscpu: ended with 1"),
    ("cpu", lscpu("Model name: -\n"), "neither /proc/cpuinfo nor lscpu"),
    ("network", fabric("rxe0", EDR, "Ethernet", physical=False), "no physical interface"),
    ("network", ethernet("eth0", "-1"), "the speed of eth0 is reported as '-1'"),
    ("network", ethernet("eth0", "4294967295"), "'4294967295'"),
    ("network", ethernet("eth0", None), "of eth0 is not readable"),
    ("network", {**ethernet("eno1", "1000"), **ethernet("ens1", "-1")}, "the speed of ens1"),
    ("network", {**fabric("a", HDR, state="2: INIT"), **fabric("b", "?"), **ethernet("eth0", None, state="down")},
     "a port 1 is INIT, b port 1 is active without a readable rate, eth0 is down"),
    ("os", {"etc/os-release": "NAME=Something\n"}, "no PRETTY_NAME"),
    ("container", {"proc/1/comm": "bash\n", "proc/1/cgroup": "0::/\n"}, "process 1 is 'bash'"),
    ("docker", {}, "docker: not found"),
    ("docker", docker("", None, problem="docker did not end within 2 s"), "did not end within 2 s"),
    ("docker", docker("", 126, "permission denied\nmore\n"), "docker: permission denied"),
    ("docker", docker("podman version 4.3.1\n"), "no version: 'podman version 4.3.1'"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "given", "value"), FACTS)
def test_a_fact_is_what_files_tools_and_variables_say(node: Node, name: str, given: Given, value: str) -> None:
    node.give(given)
    assert node.fact(name) == Fact(value)


@pytest.mark.parametrize(("name", "given", "reason"), REASONS)
def test_what_they_do_not_say_is_absent_with_the_reason(node: Node, name: str, given: Given, reason: str) -> None:
    node.give(given)
    assert reason in absent_reason(node.fact(name))


@pytest.mark.parametrize("content", [None, b"\xff\xfe:\x00=\n\n'\"::\n"])
def test_an_empty_machine_and_one_of_garbage_give_every_fact_and_never_raise(node: Node, content: bytes | None) -> None:
    if content is not None:
        for _, given, _ in (*FACTS, *REASONS):
            node.give({name: text for name, text in given.items() if isinstance(text, str) and name[0] != "$"})
        for path in node.folder.root.rglob("*"):
            if path.is_file():
                path.write_bytes(content)
        node.tools = dict.fromkeys(("lscpu", "docker", "git"), CommandOutput(0, "\x00:\n'", ""))
    environment = node.capture(packages=("no-such-distribution", ""))
    assert tuple(environment.facts) == ENVIRONMENT_FACTS
    assert (environment.packages, environment.variables) == ({}, {})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_real_machine_is_what_python_says_it_is() -> None:
    facts = capture_environment(Machine(), ["pytest"]).facts
    assert facts["kernel"].value == os.uname().release
    assert facts["os"].value == platform.freedesktop_os_release()["PRETTY_NAME"]
    assert facts["python"].value == f"{platform.python_implementation()} {platform.python_version()}"


def distribution(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_framework_is_told_without_importing_it_and_of_packages_the_installed_ones(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert absent_reason(node.fact("framework")) == f"torch is not installed in {sys.executable}"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("raise SystemExit('imported')")
    assert "has no distribution metadata" in absent_reason(node.fact("framework"))
    distribution(tmp_path / "site", "torch", "2.1.0+metax2.29")
    (tmp_path / "site/broken-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert node.fact("framework") == Fact("torch 2.1.0+metax2.29")
    assert node.capture(packages=("torch", "peft", "broken")).packages == {"torch": "2.1.0+metax2.29"}


# --- the commit -------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed work tree of the product's shape. No GIT_* variable of the caller may lead git elsewhere."""
    for variable in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(node_environment, "_TOOL_SECONDS", 600.0)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    tree = MachineFolder(tmp_path / "tree").file("core/flagperf/__init__.py").file(".gitignore", ".venv/\n").root
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return tree / "core/flagperf"


def git(tree: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_clean_work_tree_gives_its_commit_and_is_not_touched(package: Path) -> None:
    top = package.parent.parent
    (top / "flagperf.toml").write_text("")  # the user's own files at the top do not count
    (top / "注.md").write_text("")
    os.utime(package / "__init__.py", (1, 1))
    index = top / ".git/index"
    before = index.stat().st_mtime_ns, index.read_bytes()
    head = git(package, "rev-parse", "HEAD")
    assert source_commit(Machine(), package) == Fact(head)
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before

    def run_tool(argv: list[str], timeout_seconds: float) -> CommandOutput:
        if "status" in argv:
            return CommandOutput(None, "", "", "git did not end within 2 s")
        return Machine().run_tool(argv, timeout_seconds=timeout_seconds)

    assert source_commit(Machine(run_tool=run_tool), package) == Fact(f"{head}+unknown")


@pytest.mark.parametrize("path", ["core/flagperf/__init__.py", "core/flagperf/new.py", "cases/mine/case.py"])
def test_changed_and_new_code_is_told(package: Path, path: str) -> None:
    MachineFolder(package.parent.parent).file(path, "changed = True\n")
    assert source_commit(Machine(), package) == Fact(git(package, "rev-parse", "HEAD") + "+changes")


def test_a_project_around_the_installation_and_a_work_tree_without_commits_have_no_commit(package: Path) -> None:
    installed = MachineFolder(package.parent.parent / ".venv/lib/flagperf").file("__init__.py").root
    assert "is not tracked by git" in absent_reason(source_commit(Machine(), installed))
    git(package, "update-ref", "-d", "HEAD")
    assert "has no readable commit" in absent_reason(source_commit(Machine(), package))


COMMIT = "0123456789abcdef0123456789abcdef01234567"
FROM_GIT = {"url": "https://me:secret@host/flagperf.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}


NOT_FROM_GIT: list[object] = [{}, [], {"vcs_info": {"commit_id": "main"}}, {"dir_info": {"editable": True}}]


@pytest.mark.parametrize(("direct_url", "commit"), [(FROM_GIT, COMMIT), *((url, None) for url in NOT_FROM_GIT)])
def test_an_installation_from_git_alone_has_the_commit_that_it_came_from(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: object, commit: str | None
) -> None:
    source = tmp_path / "site/flagperf"
    distribution(source.parent, "flagperf", "0.1.0")
    (source.parent / "flagperf-0.1.0.dist-info/direct_url.json").write_text(json.dumps(direct_url))
    source.mkdir()
    monkeypatch.setattr(sys, "path", [str(source.parent)])
    fact = source_commit(node.machine(), source)
    if commit:
        assert fact == Fact(commit)
        assert source_commit(node.machine(), tmp_path / "another/flagperf").how == "absent"
    else:
        expected = f"{source} is not tracked by git (git: not found) and was not installed from a commit"
        assert absent_reason(fact) == expected


# --- variables --------------------------------------------------------------------------------------------------------


def test_only_listed_variables_are_recorded(node: Node) -> None:
    secrets = {
        "HF_TOKEN": "hf_0123456789", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        "HTTPS_PROXY": "http://me:hunter2@proxy:3128", "OMP_NUM_THREADS_TOKEN": "hunter2", "HOME": "/home/me",
    }  # fmt: skip
    node.environ.update(secrets, OMP_NUM_THREADS="8", MALLOC_CONF="", ACME_VISIBLE_DEVICES="0,1", ACME_OTHER="x")
    node.give({"proc/1/environ": "PIN=hunter3\0container=docker\0"})
    environment = node.capture(extra_variables=("ACME_VISIBLE_DEVICES",))
    assert environment.variables == {"OMP_NUM_THREADS": "8", "MALLOC_CONF": "", "ACME_VISIBLE_DEVICES": "0,1"}
    assert not [secret for secret in (*secrets.values(), "hunter3") if secret in repr(environment)]


SECRETS = {
    "ACME_TOKEN": ["hunter2"],  # an adapter cannot ask for one
    "acme_api_key": ["hunter2"],
    "ACME_PASSWORD": ["hunter2"],
    "LD_PRELOAD": [
        "a.so https://hunter2@host", "redis://:hunter2@host:6379/0", "https://me:hun/ter2@host", "me:hunter2@host",
        "backend=x,token=hunter2", "http://host/?API_KEY=hunter2",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, all in SECRETS.items() for value in all])
def test_secrets_are_told_by_name_and_value_and_redacted(node: Node, name: str, value: str) -> None:
    node.environ[name] = value
    assert node.capture(extra_variables=(name,)).variables == {name: "(redacted)"}


@pytest.mark.parametrize("value", ["/opt/a/jemalloc.so.2:/opt/b@2/omp.so", "expandable:True,max_split_size_mb:128"])
def test_what_is_no_secret_is_recorded(node: Node, value: str) -> None:
    node.environ["LD_PRELOAD"] = value
    assert node.capture().variables == {"LD_PRELOAD": value}


# --- simulated machines -----------------------------------------------------------------------------------------------


def test_only_1_simulates_on_a_folder_that_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLAGPERF_SIMULATE_ROOT", str(tmp_path))
    for value, simulated in (("0", False), ("", False), ("1", True)):
        monkeypatch.setenv("FLAGPERF_SIMULATE", value)
        assert is_simulated() is simulated
        assert node_machine().root == (tmp_path if simulated else Path("/"))
    for root in ("nowhere", "/" + "a" * 5_000):
        monkeypatch.setenv("FLAGPERF_SIMULATE_ROOT", str(tmp_path / root))
        with pytest.raises(BadInput, match=r"FLAGPERF_SIMULATE_ROOT=.* is not a folder"):
            node_machine()
    monkeypatch.setenv("FLAGPERF_SIMULATE", "yes")
    with pytest.raises(BadInput, match="FLAGPERF_SIMULATE='yes'"):
        is_simulated()
